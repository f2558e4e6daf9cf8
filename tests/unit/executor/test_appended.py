"""Rows that a file had taken since the last epoch and that are gone: the run is rolled back, and no missing row counts."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from agiledart_connectors.files.seals import OutputFileChangedError
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import CommittedOutput, SinkOrigin
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.checkpointing.instance_checkpointer import InstanceCheckpointer
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.user_code.forked_child import ForkedChild
from agiledart_kernel.errors import OperationFailed, RollBackNeeded


class Row(NamedTuple):
    """A row."""

    n: int


OPTIONS = ["csv:{}/out.csv", "csv:{}/out.csv?roll_bytes=1MiB", "parquet:{}/out.parquet?roll_bytes=1MiB"]
PLAIN_OPTIONS = OPTIONS[:2]


def opened(url: str, root: Path, keep: CommittedOutput | None = None) -> Any:
    origin = SinkOrigin(by_epoch=True, keep=keep, run=7, step="out")
    return open_sink(parse_connector(url.format(root)), Row, origin=origin)


def write(sink: Any, *numbers: int) -> None:
    sink.write([Row(number) for number in numbers])
    sink.flush()


def file_of(root: Path) -> Path:
    """The position that the sink resumes from."""
    return next(
        path for path in root.iterdir() if path.name.endswith((".csv", ".csv.0000000000000007.out.part", ".rows.part"))
    )


@pytest.mark.parametrize("url", PLAIN_OPTIONS)
def test_a_restored_copy_of_the_last_epochs_output_restarts_the_run_there(tmp_path: Path, url: str) -> None:
    """A user restored it on purpose; rows written since were in the file, and are not in the copy."""
    root = tmp_path / "files"
    root.mkdir()
    sink = opened(url, root)
    write(sink, 1, 2, 3)
    ends, place = sink.prepare(), sink.place
    path = file_of(root)
    shutil.copy(path, tmp_path / "copy")
    write(sink, 4, 5, 6)
    path.write_text("oops\n")
    write(sink, 7)
    assert path.read_text() == "oops\n", "nothing is written behind a hole"
    with pytest.raises(OutputFileChangedError, match=r"somebody has changed it\. Put it back"):
        sink.prepare()
    shutil.copyfile(tmp_path / "copy", path)
    write(sink, 8)
    for _ in range(2):
        with pytest.raises(RollBackNeeded, match="has lost rows that came since the last epoch"):
            sink.prepare()
    sink.close()
    again = opened(url, root, CommittedOutput(ends, place))
    write(again, 4, 5, 6, 7, 8)
    again.prepare()
    assert path.read_text() == "".join(f"{n}\n" for n in range(1, 9))
    again.close()


@pytest.mark.parametrize("url", PLAIN_OPTIONS)
def test_missing_rows_of_an_open_epoch_are_detected_without_later_rows(tmp_path: Path, url: str) -> None:
    sink = opened(url, tmp_path)
    write(sink, 1)
    sink.prepare()
    write(sink, 2)
    os.truncate(file_of(tmp_path), 2)
    with pytest.raises(RollBackNeeded, match="has lost rows"):
        sink.prepare()
    sink.close()


def test_missing_pending_rows_of_a_parquet_file_are_detected(tmp_path: Path) -> None:
    sink = opened(OPTIONS[2], tmp_path)
    write(sink, 1)
    sink.prepare()
    path = file_of(tmp_path)
    before = path.stat().st_size
    write(sink, 2)
    sink._keep_rows()
    os.truncate(path, before)
    write(sink, 3)
    with pytest.raises(RollBackNeeded, match="has lost rows"):
        sink.prepare()
    assert path.stat().st_size == before
    sink.close()


@pytest.mark.parametrize("url", PLAIN_OPTIONS)
def test_foreign_appended_rows_do_not_restart_a_run(tmp_path: Path, url: str) -> None:
    sink = opened(url, tmp_path)
    write(sink, 1)
    sink.prepare()
    write(sink, 2)
    with file_of(tmp_path).open("a") as file:
        file.write("x\n")
    write(sink, 3)
    sink.prepare()
    assert file_of(tmp_path).read_text() == "1\n2\n3\n"
    sink.close()


@pytest.mark.parametrize("url", OPTIONS)
def test_bytes_that_did_not_reach_the_disk_are_detected_at_the_next_epoch(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system marks pages clean that it could not write, and the next call succeeds."""
    sink = opened(url, tmp_path)
    write(sink, 1)
    once(monkeypatch, "fsync")
    for _ in range(1 if url == OPTIONS[0] else 2):
        with pytest.raises(RollBackNeeded, match=os.strerror(errno.EIO).lower()):
            sink.prepare()
    sink.close()


def once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the system fail so the first time that it is asked."""
    real: Callable[[int], None] = getattr(os, name)
    asked: list[int] = []

    def fail(descriptor: int) -> None:
        asked.append(descriptor)
        if len(asked) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, name, fail)


class Sink:
    """Takes an epoch for lost, or for one that has to wait."""

    latency = None

    def __init__(self, error: OperationFailed) -> None:
        self.error = error

    def write(self, rows: list[Any]) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...

    def prepare(self) -> tuple[int, ...]:
        raise self.error

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        raise self.error


@pytest.mark.parametrize("error", [RollBackNeeded("gone"), OperationFailed("full")], ids=["gone", "full"])
def test_a_sink_restarts_its_run_when_rows_are_missing_and_waits_on_a_full_disk(
    tmp_path: Path, error: OperationFailed
) -> None:
    told: list[Any] = []
    back: list[str] = []

    async def play() -> None:
        epochs = InstanceCheckpointer(tmp_path, 7, 1, lambda stage: ("out",), told.append)
        epochs.on_rollback_needed = lambda running, text: back.append(text)
        running = RunningInstance(1, 0, "out")
        running.use_writer(cast("Any", Sink(error)))
        epochs.at_barrier(running, 3, b"", 0)
        epochs._ends[running.instance_name] = {3: (1,)}
        if isinstance(error, RollBackNeeded):
            with pytest.raises(RollBackNeeded):
                epochs.commit(running, 3)
        else:
            epochs.commit(running, 3)

    asyncio.run(play())
    if isinstance(error, RollBackNeeded):
        assert (back, told) == (["out: gone"], [])
    else:
        assert (back, [one.reason for one in told]) == ([], ["full"])


@pytest.mark.parametrize("error", [RollBackNeeded("gone"), OperationFailed("full")], ids=["gone", "full"])
def test_an_instance_with_missing_rows_needs_a_new_attempt(
    error: OperationFailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, failed = RunningInstance(1, 0, "out"), []
    host = InstanceHost.__new__(InstanceHost)
    host.forked = ForkedChild()
    monkeypatch.setattr(host, "fail", lambda running, text: failed.append(text), raising=False)
    host._fail_with(running, error)
    assert (running.needs_restart, len(failed)) == (isinstance(error, RollBackNeeded), 1)
