"""A source that begins elsewhere each time and reports its position: with the epoch; a later attempt where the run began."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from agiledart_dataflow.plan.connectors import Reading
from agiledart_executor.spool.logged_reader import LoggedReader
from agiledart_executor.spool.source_log import SourceLog
from tests.unit.executor.test_instance_checkpointer import Life, Readings, Row


class Telling(Readings):
    """Reports its start before its first row, is notified of committed positions."""

    def __init__(self, allowed: int) -> None:
        super().__init__(allowed)
        self.begins: list[bytes] = []
        self.trimmed: list[int] = []

    def saved_by_epochs(self, beginning: bytes, keep: Callable[[bytes], None]) -> None:
        self.begins.append(beginning)
        keep(b"begun here")

    def trim(self, position: bytes) -> None:
        self.trimmed.append(msgspec.msgpack.decode(position))


def telling(attempt: Life) -> Telling:
    """Let the source of an attempt read with one."""
    reader: Any = Telling(attempt.reader.allowed)
    attempt.reader = reader
    source = attempt.running[0].source
    assert source is not None
    source.reader = reader
    attempt.epochs.source_logs.keep_log(attempt.running[0])
    return reader  # type: ignore[no-any-return]


def test_the_start_position_is_recorded_and_commits_are_reported_to_the_source(tmp_path: Path) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, 0)
        reader = telling(attempt)
        assert reader.begins == [b""]
        attempt.allow(100)
        await attempt.until(lambda: reader.at == 100)
        await attempt.save(1)
        attempt.allow(250)
        await attempt.until(lambda: reader.at == 250)
        await attempt.save(2)
        attempt.allow(300)
        await attempt.until(lambda: reader.at == 300)
        assert reader.trimmed == []
        for running in attempt.running:
            attempt.epochs.commit(running, 2)
        assert reader.trimmed == [250]
        attempt.epochs.commit(attempt.running[0], 2)
        assert reader.trimmed == [250], "once"
        attempt.kill()
        later = Life(tmp_path, 2, 0)
        assert telling(later).begins == [b"begun here"], "of this run"
        later.kill()

    asyncio.run(play())


def test_another_run_begins_at_its_own_position(tmp_path: Path) -> None:
    async def play() -> None:
        attempt = Life(tmp_path, 1, 0)
        telling(attempt)
        attempt.kill()
        other = Life(tmp_path, 1, 0)
        other.epochs.records.run += 1
        assert telling(other).begins == [b""]
        other.kill()

    asyncio.run(play())


def test_a_source_behind_a_log_gets_the_same_reports(tmp_path: Path) -> None:
    inner = Telling(5)
    reader = LoggedReader(inner, SourceLog(tmp_path, 1 << 20, fresh=True), Row)
    reader.saved_by_epochs(b"there", lambda position: None)
    assert inner.begins == [b"there"]
    reading: Reading = reader.read(10, 0)
    assert len(reading.rows) == 5
    position = reader.position()
    inner.allowed = 9
    reader.read(10, 0)
    reader.trim(position)
    assert inner.trimmed == [5]
    reader.close()
