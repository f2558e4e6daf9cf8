"""The agent's process for columns: started when a segment is full, gone when idle, and what follows when it dies."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_agent.sink_logs import columns_process
from agiledart_agent.sink_logs.columns_process import ColumnsProcess
from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.protocol import BY_COLUMNS, Fetch, Fetched, FetchedParts, StoredPart
from agiledart_sink_log.segment_rewriter import full_segments
from tests.unit.agent.test_sink_log_server import Bench, run
from tests.unit.sink_log.test_segment_rewriter import append, comparable, log_of, rows_of

pytest.importorskip("pyarrow")


def pid_of(process: ColumnsProcess) -> int:
    """The process id; 0 while there is no process."""
    return process._process.pid if process._process is not None else 0


async def until(is_true: Any) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110  what it waits for happens on the disk
            await asyncio.sleep(0)


def count_looks(process: ColumnsProcess, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each look for work."""
    looks: list[int] = []
    real = process._has_work

    def counted() -> bool:
        looks.append(1)
        return real()

    monkeypatch.setattr(process, "_has_work", counted)
    return looks


def test_full_segments_are_rewritten_and_a_process_that_dies_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_process, "LOOK_SECONDS", 0.05)
    warnings: list[str] = []

    async def scenario() -> None:
        log = log_of(tmp_path)
        process = ColumnsProcess(tmp_path, warnings.append)
        looks = count_looks(process, monkeypatch)
        rewriting = asyncio.create_task(process.rewrite_forever())
        await until(lambda: len(looks) > 1)
        assert pid_of(process) == 0  # no work, no process
        append(log, 1_000)
        full = len(list(full_segments(tmp_path)))
        await until(lambda: process.rewritten == full)
        os.kill(pid_of(process), signal.SIGKILL)
        append(log, 1_000)
        await until(lambda: not list(full_segments(tmp_path)))
        assert [row[0] for row in rows_of(tmp_path)] == list(range(2_000))
        rewriting.cancel()
        await process.close()
        log.close()

    asyncio.run(scenario())
    assert warnings == []


def test_without_pyarrow_nothing_is_rewritten_and_columns_are_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_process, "has_pyarrow", lambda: False)

    async def scenario() -> None:
        process = ColumnsProcess(tmp_path, lambda text: None)
        await process.rewrite_forever()  # returns at once
        with pytest.raises(OperationFailed, match="pip install 'agiledart"):
            await process.rows_of("x", 1, [b""])

    asyncio.run(scenario())


def test_a_segment_that_stays_rows_does_not_keep_the_process_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_process, "LOOK_SECONDS", 0.05)
    log = log_of(tmp_path)
    append(log, 1_000)
    damaged = next(iter(full_segments(tmp_path)))
    path = log.directory / "0" / f"{damaged.base:020}.segment"
    raw = bytearray(path.read_bytes())
    raw[2_000] ^= 1
    path.write_bytes(raw)
    asked: list[int] = []

    async def scenario() -> None:
        process = ColumnsProcess(tmp_path, lambda text: None)
        real = process._rewrite_some

        async def counted() -> None:
            asked.append(1)
            await real()

        monkeypatch.setattr(process, "_rewrite_some", counted)
        rewriting = asyncio.create_task(process.rewrite_forever())
        await until(lambda: len(list(full_segments(tmp_path))) == 1)
        await until(lambda: not process._has_work())
        before = len(asked)
        looks = count_looks(process, monkeypatch)
        await until(lambda: len(looks) > 2)
        assert len(asked) <= before + 1
        rewriting.cancel()
        await process.close()

    asyncio.run(scenario())
    log.close()


def test_readers_that_know_columns_get_parts_and_others_get_rows(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    append(log, 1_000)
    before = [comparable(row) for row in rows_of(tmp_path)]

    async def scenario(bench: Bench) -> None:
        while list(full_segments(tmp_path)):
            await bench.server.columns._rewrite_some()
        link = bench.connect()
        rows: list[Any] = []
        number = 1
        while len(rows) < 1_000:
            link.ask(Fetch(number, "x", 0, len(rows), 100_000, 8 << 10))
            old = await link.answer(number)
            assert isinstance(old, Fetched)
            assert old.next_offset > len(rows)
            for batch in old.batches:
                rows += msgspec.msgpack.decode(batch.body)[max(0, len(rows) - batch.offset) :]
            number += 1
        assert [comparable(row) for row in rows] == before
        assert not link.frames
        link.ask(Fetch(number, "x", 0, 0, columns=(0, 3)))
        new = await link.answer(number)
        assert isinstance(new, FetchedParts)
        assert new.parts[0].form == BY_COLUMNS
        assert [sum(part.sizes) for part in new.parts] == [len(frame) for frame in link.frames]
        assert isinstance(new.parts[0], StoredPart)
        assert len(new.parts[0].sizes) == 2
        assert bench.server.bytes_left_out > 0
        assert LogReader(log.directory).ends(0).committed == 1_000

    run(tmp_path, scenario)
    log.close()


def test_idle_readers_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_agent.sink_logs.sink_log_server.MAX_READERS", 2)

    async def scenario(bench: Bench) -> None:
        first, second = bench.connect(), bench.connect()
        third = bench.connect()
        await asyncio.sleep(0)
        assert (first.closed, second.closed, third.closed) == ("", "", "full")
        monkeypatch.setattr("agiledart_agent.sink_logs.sink_log_server.IDLE_SECONDS", -1.0)
        fourth = bench.connect()
        await asyncio.sleep(0)
        assert (first.closed, second.closed, fourth.closed) == ("done", "", "")

    run(tmp_path, scenario)
