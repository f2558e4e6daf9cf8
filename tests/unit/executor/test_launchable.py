"""Opening a log whose last writer is about to end: it is waited for, and everything else of the process goes on."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from agiledart import Topology, log, records
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.program import compile_program
from agiledart_executor.programs import launchable as launchable_module
from agiledart_executor.programs.launchable import Launchable
from agiledart_kernel.errors import ConfigurationError, OperationFailed


class Reading(NamedTuple):
    at: int
    value: int = 0


def code() -> tuple[Launchable, int]:
    """An application that writes the log `x`, and the stage of its sink."""
    made = Topology("waits")
    made.source("readings", records([Reading(1)], row_type=Reading), event_time=lambda row: row.at).sink(
        "out", log("x")
    )
    plan = plan_stages(made.specification())
    (sink,) = (stage.index for stage in plan.stages if stage.kind == "sink")
    return Launchable(compile_program(made, plan), plan, {}, "waits", 1), sink


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchable_module, "_ROOT", tmp_path)


def test_the_loop_runs_while_the_last_writer_ends(tmp_path: Path) -> None:
    launchable, sink = code()
    endpoint = launchable.program.endpoint(sink)
    last = open_sink(endpoint.connector, endpoint.row_type, origin=SinkOrigin("waits", 0, tmp_path))

    async def scenario() -> None:
        opening = asyncio.create_task(launchable.open_instance(sink, 0))
        for _ in range(1_000):
            await asyncio.sleep(0)  # turns of the loop that a waiting process could not make
        assert not opening.done()
        last.close()
        running = await asyncio.wait_for(opening, 10)
        assert running.writer is not None
        running.close()

    asyncio.run(scenario())


def test_a_log_that_stays_in_use_is_refused_eventually(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchable_module, "LOCK_SECONDS", 0.0)
    launchable, sink = code()
    endpoint = launchable.program.endpoint(sink)
    last = open_sink(endpoint.connector, endpoint.row_type, origin=SinkOrigin("other", 0, tmp_path))
    with pytest.raises(OperationFailed, match="out: the log x is being written by another application"):
        asyncio.run(launchable.open_instance(sink, 0))
    last.close()


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("log:x", False),
        ("csv:{here}/out.csv", False),
        ("jsonl:{here}/out.jsonl", False),
        ("csv:{here}/out.csv?roll_bytes=1000000", False),
        ("stdout:", True),
        ("parquet:{here}/out", False),
        ("http://127.0.0.1:9/hook", True),
        ("http://127.0.0.1:9/hook?duplicates=1", False),
        ("influx://127.0.0.1:9/plant?measurement=m", True),
        ("influx://127.0.0.1:9/plant?measurement=m&time=at", False),
    ],
)
def test_a_sink_that_cannot_abort_is_refused_for_exactly_once(tmp_path: Path, url: str, refused: bool) -> None:
    made = Topology("saved", delivery="exactly-once")
    connector = parse_connector(url.format(here=tmp_path))
    made.source("readings", records([Reading(1)], row_type=Reading), event_time=lambda row: row.at).sink(
        "out", connector
    )
    plan = plan_stages(made.specification())
    (sink,) = (stage.index for stage in plan.stages if stage.kind == "sink")
    launchable = Launchable(compile_program(made, plan), plan, {}, "saved", 1)
    if not refused:
        asyncio.run(launchable.open_instance(sink, 0, by_epoch=True)).close()
        return
    with pytest.raises(ConfigurationError, match=r"cannot withdraw rows.*log:NAME.*\(out\)"):
        asyncio.run(launchable.open_instance(sink, 0, by_epoch=True))
    asyncio.run(launchable.open_instance(sink, 0)).close()
