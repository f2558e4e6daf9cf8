"""Rows committed in a run's register are visible in its logs, also when their writer is gone."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from agiledart_agent.executors.ended_sink_logs import commit_ended_logs
from agiledart_connectors.logs.log_sink import LogSinkWriter
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import CommittedOutput, SinkOrigin
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.snapshots.snapshot_file import SnapshotHeader, run_folder, write_snapshot
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.effects import CommitLogs, ForgetRun
from agiledart_sink_log.layout import damaged_in, log_directory
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.log_writer import LogBusyError


class Row(NamedTuple):
    """A row."""

    n: int


def writer(root: Path, version: int = 1, keep: CommittedOutput | None = None) -> LogSinkWriter:
    origin = SinkOrigin("app", version, root, 0.0, by_epoch=True, keep=keep)
    made = open_sink(parse_connector("log:out?partitions=2&key=n"), Row, origin=origin)
    assert isinstance(made, LogSinkWriter)
    return made


def committed(root: Path) -> int:
    reader = LogReader(log_directory(root, "out"))
    return sum(reader.ends(partition).committed for partition in range(2))


def saved(root: Path, sink: LogSinkWriter) -> CommitLogs:
    """The snapshot of a sink's last epoch, as the register names it."""
    blocks = [b"snapshot", msgspec.msgpack.encode(sink.prepare()), sink.identity.encode()]
    digest, _ = write_snapshot(run_folder(root, "app", 1), SnapshotHeader(7, 1, 2, 2, 0, ("out",), True), blocks)
    return CommitLogs(1, "app", 1, 2, (digest,))


def test_the_last_epoch_is_readable_after_its_writer_is_gone(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write([Row(n) for n in range(9)])
    sink.commit(sink.prepare(), 1)
    sink.write([Row(n) for n in range(9, 20)])
    effect = saved(tmp_path, sink)
    with pytest.raises(LogBusyError):
        commit_ended_logs(tmp_path, effect)  # its process still runs, and may do it itselff
    with contextlib.suppress(OSError):
        sink.close()
    assert committed(tmp_path) == 9
    for _ in range(2):
        assert commit_ended_logs(tmp_path, effect) == []
        assert committed(tmp_path) == 20


def test_readers_of_a_failed_run_get_committed_rows_and_the_reason_for_the_end(tmp_path: Path) -> None:
    """The process died before it was notified of the last commit, and had written rows of an epoch that was never committed."""
    sink = writer(tmp_path)
    sink.write([Row(n) for n in range(9)])
    (digest,) = saved(tmp_path, sink).digests
    sink.write([Row(n) for n in range(9, 20)])
    sink.prepare()
    sink.close()
    reader = LogReader(log_directory(tmp_path, "out"))
    latest = [reader.ends(partition, uncommitted=True).latest for partition in range(2)]
    assert (committed(tmp_path), sum(latest), reader.description.ended) == (0, 20, "")
    for _ in range(2):
        assert commit_ended_logs(tmp_path, ForgetRun("app", 1, (digest,), "user code raised")) == []
        reader = LogReader(log_directory(tmp_path, "out"))
        latest = [reader.ends(partition, uncommitted=True).latest for partition in range(2)]
        assert (committed(tmp_path), sum(latest), reader.description.ended) == (9, 9, "user code raised")
    again = writer(tmp_path, version=2)
    assert LogReader(log_directory(tmp_path, "out")).description.ended == "", "it goes on"
    again.close()


def test_rows_written_since_by_another_run_stay(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write([Row(n) for n in range(5)])
    effect = saved(tmp_path, sink)
    sink.close()
    later = writer(tmp_path, version=2)
    later.write([Row(n) for n in range(30)])
    later.commit(later.prepare(), 1)
    later.close()
    before = committed(tmp_path)
    assert commit_ended_logs(tmp_path, effect) == []
    assert committed(tmp_path) == before


def test_a_damaged_snapshot_is_reported_and_does_not_block_others(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write([Row(1)])
    effect = saved(tmp_path, sink)
    sink.close()
    (path,) = (run_folder(tmp_path, "app", 1) / "elements").iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    (told,) = commit_ended_logs(tmp_path, effect)
    assert "rows of the last epoch of app may not be visible" in told
    assert committed(tmp_path) == 0


TRAPS = (
    "log.json.new",
    "log.json.good.new",
    "0/committed",
    "0/00000000000000000000.segment",
    "0/00000000000000000020.segment",
)


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_nothing_in_a_logs_folder_redirects_or_blocks_the_agent(tmp_path: Path, trap: str, kind: str) -> None:
    """Users' code may write there; the agent commits there later, and may write everywhere."""
    sink = writer(tmp_path)
    sink.write([Row(n) for n in range(20)])
    effect = saved(tmp_path, sink)
    with contextlib.suppress(OSError):
        sink.close()
    victim = tmp_path / "node.key"
    victim.write_text("the key")
    place = log_directory(tmp_path, "out") / trap
    place.unlink(missing_ok=True)
    if kind == "link":
        place.symlink_to(victim)
    else:
        os.mkfifo(place)
    with contextlib.suppress(OperationFailed):
        commit_ended_logs(tmp_path, effect)
    assert victim.read_text() == "the key"


def test_a_partition_link_to_another_folder_is_not_followed(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write([Row(n) for n in range(20)])
    effect = saved(tmp_path, sink)
    with contextlib.suppress(OSError):
        sink.close()
    folder, elsewhere = log_directory(tmp_path, "out") / "0", tmp_path / "elsewhere"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    with pytest.raises(OperationFailed, match="out/0 cannot be written"):
        commit_ended_logs(tmp_path, effect)
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


@pytest.mark.parametrize("harm", ["deep", "name"])
def test_a_spoilt_log_does_not_keep_other_logs_from_their_end(tmp_path: Path, harm: str) -> None:
    sink = writer(tmp_path)
    sink.write([Row(n) for n in range(20)])
    effect = saved(tmp_path, sink)
    with contextlib.suppress(OSError):
        sink.close()
    spoilt = log_directory(tmp_path, "aaa")
    (spoilt / "0").mkdir(parents=True)
    if harm == "deep":
        (spoilt / "log.json").write_bytes(b"[" * 200_000)
    else:
        (spoilt / "0" / "\u00b2.segment").touch()
    assert commit_ended_logs(tmp_path, effect) == []
    assert committed(tmp_path) == 20
    assert len(list(damaged_in(tmp_path))) == (harm == "deep")
