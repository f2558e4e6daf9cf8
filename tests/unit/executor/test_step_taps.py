"""Taps: the sample, its limit, and that nothing is sampled without a request."""

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import Pane, Topology, collect, records, tumbling
from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.position import covering
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.instance import Instance
from agiledart_dataflow.runtime.program import Program, compile_program
from agiledart_dataflow.runtime.source_instance import SourceInstance
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.instances.step_taps import (
    LEASE_SECONDS,
    MAX_ROW_BYTES,
    MAX_ROWS_PER_SAMPLE,
    MAX_TAPS,
    StepTaps,
    TapPoint,
)
from agiledart_executor.wire.agent_messages import InstanceName, TapSample


class Reading(NamedTuple):
    """A row."""

    at: int
    room: str
    value: float


def warm(reading: Reading) -> bool:
    return reading.value > 10


def rounded(reading: Reading) -> Reading:
    return reading._replace(value=round(reading.value))


def twice(reading: Reading) -> list[Reading]:
    return [reading, reading]


def room_of(reading: Reading) -> str:
    return reading.room


class Number(NamedTuple):
    """How many."""

    number: int


def number(pane: Pane[str, int]) -> Number:
    return Number(pane.value)


def program() -> Program:
    """Three stages: readings; warm, rounded and twice in one loop; report."""
    made = Topology("tapped")
    rows = made.source("readings", records([Reading(1, "a", 1.0)]), event_time=lambda row: row.at)
    rows.filter(warm).map(rounded).flat_map(twice).sink("report", collect)
    return compile_program(made, plan_stages(made.specification(), 1, "positions"))


def tapping(made: Program) -> StepTaps:
    def row_type(stage: int, name: str) -> Any:
        return next(step.row_type for step in made.steps(stage) if step.name == name)

    return StepTaps(lambda stage: [step.name for step in made.steps(stage)], row_type, lambda: 0)


def instance(made: Program, stage: int) -> RunningInstance:
    running = RunningInstance(stage, 0, made.plan.stages[stage].name)
    endpoint = made.endpoint(stage) if made.plan.stages[stage].kind != "operator" else None
    if endpoint is not None and made.plan.stages[stage].kind == "source":
        running.source = SourceInstance(made, stage, open_source(endpoint.connector, endpoint.row_type))
    elif endpoint is not None:
        running.use_writer(open_sink(endpoint.connector, endpoint.row_type))
        running.instance = Instance(made, stage, 0, running.writer)
    else:
        running.instance = Instance(made, stage, 0)
    return running


def batch(values: Iterable[float], first: int = 1) -> Batch:
    rows = [Reading(first + n, "a", value) for n, value in enumerate(values)]
    positions = [(row.at, 1, 0, row.at) for row in rows]
    return Batch(rows, positions, covering(positions[-1]))


def work(running: RunningInstance, given: Batch) -> list[Any]:
    out: list[Any] = []
    assert running.instance is not None
    running.instance.offer(running.stage - 1, 0, given)
    running.instance.work(lambda edge, target, sent: out.extend(sent.rows))
    return out


def seen(told: Iterable[TapSample], step: str) -> list[Any]:
    return [json.loads(row.text)["value"] for sampled in told if sampled.step == step for row in sampled.rows]


def test_every_step_of_a_fused_stage_can_be_tapped_without_changing_rows() -> None:
    made = program()
    plain, tapped = instance(made, 1), instance(made, 1)
    taps = tapping(made)
    for step in ("warm", "rounded", "twice"):
        taps.open(step, 0.0)
    assert taps.take_samples([tapped], 0.0) == []
    given = [10.4, 11.4, 12.6, 9.0]
    assert work(tapped, batch(given)) == work(plain, batch(given))
    told = taps.take_samples([tapped], 0.5)
    assert seen(told, "warm") == [10.4, 11.4, 12.6]
    assert seen(told, "rounded") == [10, 11, 13]
    assert seen(told, "twice") == [10, 10, 11, 11, 13, 13]
    assert [sampled.passed for sampled in told] == [3, 3, 6]
    assert told[0].instance == InstanceName(1, 0)
    assert told[0].rows[0].time_ms == 1
    assert plain.instance is not None
    assert tapped.instance is not None
    assert tapped.instance.statistics() == plain.instance.statistics()


def test_tapping_one_step_splits_the_loop_only_there() -> None:
    made = program()
    tapped, taps = instance(made, 1), tapping(made)
    taps.open("rounded", 0.0)
    taps.take_samples([tapped], 0.0)
    assert len(work(tapped, batch([20.2, 1.0]))) == 2
    assert [sampled.step for sampled in taps.take_samples([tapped], 0.1)] == ["rounded"]


def test_sources_and_sinks_can_be_tapped() -> None:
    made = program()
    source, sink, taps = instance(made, 0), instance(made, 2), tapping(made)
    taps.open("readings", 0.0)
    taps.open("report", 0.0)
    taps.take_samples([source, sink], 0.0)
    assert source.source is not None
    polled = source.source.poll(0, 0)
    assert polled.batch is not None
    source.source.send(polled.batch, lambda edge, target, sent: None)
    work(sink, batch([5.0]))
    told = taps.take_samples([source, sink], 0.1)
    assert (seen(told, "readings"), seen(told, "report")) == ([1.0], [5.0])


def test_taps_distinguish_an_operator_from_the_steps_behind_it() -> None:
    made = Topology("windows")
    rows = made.source("readings", records([Reading(1, "a", 1.0)]), event_time=lambda row: row.at)
    counted = rows.key_by(room_of).window(tumbling(timedelta(milliseconds=10))).count("per-room")
    counted.map(number).sink("report", collect)
    compiled = compile_program(made, plan_stages(made.specification(), 1, "positions"))
    stage = next(stage.index for stage in compiled.plan.stages if stage.name.startswith("per-room"))
    tapped, taps = instance(compiled, stage), tapping(compiled)
    taps.open("per-room", 0.0)
    taps.open("number", 0.0)
    taps.take_samples([tapped], 0.0)
    work(tapped, batch([1.0, 2.0], first=1))
    work(tapped, batch([3.0], first=25))
    whole, only = taps.take_samples([tapped], 0.1)
    assert (whole.step, only.step) == ("per-room", "number")
    assert json.loads(whole.rows[0].text)["value"] == 2
    assert json.loads(only.rows[0].text) == {"number": 2}


def test_an_unused_tap_is_removed() -> None:
    made = program()
    tapped, taps = instance(made, 1), tapping(made)
    taps.open("warm", 0.0)
    taps.take_samples([tapped], 0.0)
    taps.open("warm", LEASE_SECONDS - 0.1)
    taps.take_samples([tapped], LEASE_SECONDS + 0.1)
    work(tapped, batch([20.0]))
    assert len(taps.take_samples([tapped], 2 * LEASE_SECONDS)) == 1
    work(tapped, batch([20.0], first=50))
    assert taps.take_samples([tapped], 2 * LEASE_SECONDS + 1) == []
    assert tapped.instance is not None
    assert tapped.instance.steps.taps == {}


def test_a_tap_samples_evenly_up_to_its_share_and_counts_the_rest() -> None:
    point = TapPoint(InstanceName(0, 0), Reading, lambda: 0)
    given = batch([float(n) for n in range(1_000)])
    for _ in range(3):
        point(given.rows, given.order)
    told = point.taken("x")
    assert told is not None
    assert told.passed == 3_000
    values = seen([told], "x")
    assert len(values) == MAX_ROWS_PER_SAMPLE
    assert values[:3] == [0.0, 40.0, 80.0]
    assert point.taken("x") is None
    point(given.rows[:1], given.order[:1])
    again = point.taken("x")
    assert again is not None
    assert seen([again], "x") == [0.0]


def test_taps_are_bounded() -> None:
    made = program()
    taps = tapping(made)
    for number in range(MAX_TAPS):
        taps.open(f"step{number}", 0.0)
    taps.open("warm", 0.0)
    tapped = instance(made, 1)
    taps.take_samples([tapped], 0.0)
    work(tapped, batch([20.0]))
    assert taps.take_samples([tapped], 0.1) == []


class Odd:
    """A value that no encoder likes."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [Odd(), "\ud800", {1: {2: object()}}, 2**70, float("nan"), b"\xff"])
def test_a_row_that_cannot_be_displayed_harms_nothing(value: Any) -> None:
    point = TapPoint(InstanceName(0, 0), Any, lambda: 0)
    point([value], [(1, 1, 0, 0)])
    told = point.taken("x")
    assert told is not None
    json.loads(told.rows[0].text)


def test_a_long_row_is_truncated_and_still_json() -> None:
    point = TapPoint(InstanceName(0, 0), str, lambda: 0)
    point(["é" * 10_000], [(1, 1, 0, 0)])
    told = point.taken("x")
    assert told is not None
    assert len(told.rows[0].text) <= MAX_ROW_BYTES
    assert json.loads(told.rows[0].text).endswith("…")
