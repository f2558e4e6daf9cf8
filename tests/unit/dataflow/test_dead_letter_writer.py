"""Dead letters of records that are not what their type says: they never end what on_error drops."""

import json
from typing import Any, NamedTuple, cast

import pytest

from agiledart import Topology, collect, records
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.position import START
from agiledart_dataflow.data.rows import DeadLetter
from agiledart_executor.local_runs.local_run import LocalRun, run_topology


class Line(NamedTuple):
    """A line of a device."""

    at: int
    text: str


class Reading(NamedTuple):
    """Its expected text."""

    at: int
    value: float


def parse(line: Line) -> Reading:
    """Lets through what is no reading: no code checks a value before it travels."""
    return Reading(line.at, cast(Any, json.loads(line.text)))


def doubled(reading: Reading) -> Reading:
    return reading._replace(value=reading.value * 2)


def kept(reading: Reading) -> bool:
    return reading.value > 0


def as_map(readings: Any) -> Any:
    return readings.map(doubled, "step", on_error="dead_letter")


def as_filter_behind_a_map(readings: Any) -> Any:
    return readings.map(lambda row: row, "same", returns=Reading).filter(kept, "step", on_error="dead_letter")


def run(step: Any, texts: list[str], parallelism: int = 1) -> LocalRun:
    made = Topology("letters")
    lines = made.source("lines", records([Line(n, text) for n, text in enumerate(texts)]), event_time="at", rows=Line)
    treated = step(lines.map(parse))
    treated.sink("out", collect)
    treated.errors("errors").sink("letters", collect)
    return run_topology(made, parallelism=parallelism)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("step", [as_map, as_filter_behind_a_map])
def test_a_record_that_cannot_be_encoded_is_skipped_and_reported(step: Any, parallelism: int) -> None:
    done = run(step, ["1", "null", "2", "{}"], parallelism)
    counts = done.summary.steps["step"]
    assert (counts.skipped, counts.dead_letters) == (2, 0)
    assert done.collected["letters"] == []
    assert len(done.collected["out"]) == 2


def test_a_message_with_half_a_character_is_encoded() -> None:
    def named(line: Line) -> Line:
        raise ValueError(f"unknown device {json.loads(line.text)}")

    made = Topology("letters")
    lines = made.source("lines", records([Line(0, r'"\ud83d"')]), event_time="at", rows=Line)
    step = lines.map(named, "step", on_error="dead_letter")
    step.sink("out", collect)
    step.errors("errors").sink("letters", collect)
    (letter,) = run_topology(made).collected["letters"]
    assert letter.error.endswith("ValueError: unknown device ?")
    codec = BatchCodec(DeadLetter[Line], "rows")
    assert codec.decode(codec.encode(Batch([letter], None, START))).rows == [letter]
