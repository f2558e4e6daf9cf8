"""The log of sampled latencies, writer's side: the sample, the cost of a failing disk, names, bounds."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from agiledart import ReadTime, Topology, log, null, records
from agiledart_connectors.memory import MemoryWriter
from agiledart_connectors.opening import open_sink
from agiledart_dataflow.counts.sampling import is_sampled
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.position import RECORD, Position
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_dataflow.runtime.program import compile_program
from agiledart_executor.instances import latency_log
from agiledart_executor.instances.latency_log import LatencyKeeping, LatencyLog, SampledSink
from agiledart_executor.programs import launchable as launchable_module
from agiledart_executor.programs.launchable import Launchable
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.limits import MAX_APPLICATION_NAME, MIN_LATENCY_LOG_BYTES
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.protocol import latency_log_name, sink_name_fault, user_sink_name_fault

NOW = 1_700_000_000_000_000_000
NAME = "_latency.app"


class Row(NamedTuple):
    number: int
    read_at: ReadTime


class Plain(NamedTuple):
    number: int


def made(root: Path, max_bytes: int = 1 << 20, clock: Callable[[], int] = lambda: NOW) -> LatencyLog:
    sink = SampledSink("app", 3, "out", ("trips", "other"))
    return LatencyLog(NAME, sink, Row, LatencyKeeping(max_bytes, 86_400_000), root, clock)


def fed(latencies: LatencyLog, first: int, count: int, source: int = 1) -> None:
    """Rows that were read n µs before they are observed."""
    numbers = range(first, first + count)
    positions: list[Position] = [(5, RECORD, source, n, 0) for n in numbers]
    latencies([Row(n, ReadTime(NOW - n * 1_000)) for n in numbers], positions)


def kept(root: Path, name: str = NAME) -> list[list[Any]]:
    reader = LogReader(log_directory(root, name))
    ends = reader.ends(0)
    offset, found = ends.first, []
    while offset < ends.committed:
        batches, offset, _ = reader.fetch(0, offset, 10_000, 1 << 20)
        found += [row for batch in batches for row in msgspec.msgpack.decode(batch.body)]
    return found


def test_exactly_the_sampled_records_are_kept_with_their_latencies(tmp_path: Path) -> None:
    latencies = made(tmp_path)
    fed(latencies, 0, 400)
    latencies.hand_over()
    fed(latencies, 400, 600)
    latencies.close()
    latencies.close()
    chosen = [n for n in range(1_000) if is_sampled(1, n)]
    assert kept(tmp_path) == [["app", 3, "out", "other", n, NOW, n / 1_000] for n in chosen]
    assert latencies.figures() == {"kept": len(chosen), "lost": 0}


def test_columns_are_sampled_like_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = made(tmp_path)
    rows = Columns.from_rows([Row(n, ReadTime(NOW - n * 1_000)) for n in range(1_000)], Row)
    columns = rows.replaced(Row, {field.name: rows.named(field.name) for field in rows.schema.fields})
    turned: list[int] = []
    make_rows = Columns.rows

    def counted(some: Columns) -> list[Any]:
        turned.append(len(some))
        return make_rows(some)

    monkeypatch.setattr(Columns, "rows", counted)
    latencies(columns, np.array([(5, RECORD, 1, n, 0) for n in range(1_000)]))
    latencies.close()
    chosen = [n for n in range(1_000) if is_sampled(1, n)]
    assert kept(tmp_path) == [["app", 3, "out", "other", n, NOW, n / 1_000] for n in chosen]
    assert turned == [len(chosen)], "only rows that are kept are made"


def test_a_counting_sink_makes_no_rows_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    ages = [5, 1_000, 10**9, -3]
    rows = [Row(n, ReadTime(NOW - age)) for n, age in enumerate(ages)]
    by_row, by_column = (MemoryWriter(Connector("null"), Row, lambda: NOW) for _ in range(2))
    by_row.write(rows)
    columns = Columns.from_rows(rows, Row)
    columns.named("read_at")
    monkeypatch.setattr(Columns, "rows", lambda _: pytest.fail("rows were made"))
    by_column.write_columns(columns)
    assert by_column.latency.to_plain() == by_row.latency.to_plain()


def test_a_clock_set_back_gives_no_negative_latency(tmp_path: Path) -> None:
    latencies = made(tmp_path, clock=lambda: NOW - 10**15)
    fed(latencies, 0, 200)
    latencies.close()
    assert {row[-1] for row in kept(tmp_path)} == {0.0}


def test_the_log_keeps_its_size(tmp_path: Path) -> None:
    latencies = made(tmp_path, max_bytes=MIN_LATENCY_LOG_BYTES)
    for turn in range(25):
        fed(latencies, 2_000 * turn, 2_000)
        latencies.hand_over()
        latencies._work.result(10)
    latencies.close()
    folder = log_directory(tmp_path, NAME) / "0"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 1.5 * MIN_LATENCY_LOG_BYTES
    assert 0 < len(kept(tmp_path)) < latencies.kept


def test_a_slow_disk_blocks_nothing_and_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = made(tmp_path)
    latencies._work.result(10)
    gate = threading.Event()
    write = latencies._write

    def wait_and_write(samples: list[latency_log.LatencySample]) -> None:
        gate.wait(10)
        write(samples)

    monkeypatch.setattr(latencies, "_write", wait_and_write)
    monkeypatch.setattr(latency_log, "MAX_WAITING", 100)
    fed(latencies, 0, 1_000)
    latencies.hand_over()  # returns, although the thread waits
    for turn in range(1, 5):
        fed(latencies, 1_000 * turn, 1_000)
        latencies.hand_over()
    assert not latencies._work.done()
    assert len(latencies._waiting) <= 100
    assert latencies.lost > 0
    gate.set()
    latencies.close()
    assert latencies.kept + latencies.lost == sum(is_sampled(1, n) for n in range(5_000))
    assert len(kept(tmp_path)) == latencies.kept


def test_a_full_disk_is_counted_logged_once_and_retried_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    latencies = made(tmp_path)
    latencies._work.result(10)

    def full(descriptor: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        for turn in range(3):
            fed(latencies, 1_000 * turn, 1_000)
            latencies.hand_over()
            latencies._work.result(10)
    assert latencies.figures() == {"kept": 0, "lost": sum(is_sampled(1, n) for n in range(3_000))}
    said = capsys.readouterr().err
    assert said.count("its latencies are not kept") == 1
    assert "no space left on device" in said
    latencies._retry_at = 0.0
    fed(latencies, 3_000, 1_000)
    latencies.close()
    assert len(kept(tmp_path)) == latencies.kept == sum(is_sampled(1, n) for n in range(3_000, 4_000))


def test_a_root_that_is_no_folder_causes_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sink-logs").write_text("in the way")
    latencies = made(tmp_path)
    fed(latencies, 0, 1_000)
    latencies.close()
    assert latencies.kept == 0 < latencies.lost
    assert capsys.readouterr().err.count("\n") == 1


def launchable(row_type: Any, keeping: LatencyKeeping) -> tuple[Launchable, list[int]]:
    topology = Topology("app")
    read = topology.source("readings", records([], row_type=row_type), event_time=lambda row: row.number)
    read.sink("first", null())
    read.sink("second", null())
    plan = plan_stages(topology.specification())
    stages = [stage.index for name in ("first", "second") for stage in plan.stages if stage.name == name]
    return Launchable(compile_program(topology, plan), plan, {}, "app", 1, keeping), stages


@pytest.mark.parametrize(
    ("row_type", "max_bytes", "is_stored"), [(Row, 1 << 20, True), (Row, 0, False), (Plain, 1 << 20, False)]
)
def test_each_sink_with_read_times_gets_a_log_when_the_agent_enables_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_type: Any, max_bytes: int, *, is_stored: bool
) -> None:
    monkeypatch.setattr(launchable_module, "_ROOT", tmp_path)
    code, stages = launchable(row_type, LatencyKeeping(max_bytes, 86_400_000))

    async def scenario() -> None:
        for stage, name in zip(stages, ("_latency.app", "_latency2.app"), strict=True):
            running = await code.open_instance(stage, 0)
            assert (running.latencies is not None) is is_stored
            assert ("latency_samples" in running.report()) is is_stored
            assert log_directory(tmp_path, name).exists() is is_stored
            running.close()

    asyncio.run(scenario())


def test_system_names_are_rejected_as_user_names(tmp_path: Path) -> None:
    longest = latency_log_name("a" * MAX_APPLICATION_NAME, 255)
    assert sink_name_fault(longest) == ""
    assert "system's own" in user_sink_name_fault(longest)
    assert user_sink_name_fault("latency.app") == ""
    assert "at most 64" in user_sink_name_fault("a" * 65)
    with pytest.raises(ConfigurationError, match="names that begin with _"):
        open_sink(log("_latency.app"), Row)
