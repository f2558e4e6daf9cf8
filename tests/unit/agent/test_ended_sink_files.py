"""Rolled files of a run that has ended: committed files get their names, though no process of the run is left."""

import asyncio
import os
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart_agent.executors import ended_sink_files
from agiledart_agent.executors.ended_sink_files import finish_remaining_files, publish_ended_files
from agiledart_agent.settings import AgentSettings
from agiledart_connectors.files import parquet_writer
from agiledart_connectors.files.pending_place import PendingPlace, parse_pending_place
from agiledart_connectors.opening import open_sink, open_source
from agiledart_connectors.sink_origin import SinkOrigin
from agiledart_dataflow.plan.connector_abilities import WriterAbilities
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.snapshots.snapshot_file import SnapshotHeader, run_folder, write_snapshot
from agiledart_executor.user_code import landlock
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.effects import CommitLogs, ForgetRun
from tests.unit.connectors.reading import taken

KINDS = ("csv", "jsonl", "parquet")
RUN = 0xABC


class Row(NamedTuple):
    """A row."""

    n: int
    value: int | None


def row(number: int) -> Row:
    return Row(number, None if number % 300 < 150 else 7 * number)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "GROUP_ROWS", 100)


class Ended:
    """A sink of a run, and what the agent finds of it."""

    def __init__(
        self, tmp_path: Path, kind: str, options: str = "?roll_bytes=64MiB", state_dir: Path | None = None
    ) -> None:
        self.folder, self.kind = tmp_path / "out", kind
        self.folder.mkdir()
        self.settings = AgentSettings(state_dir=state_dir or tmp_path / "agent")
        self.settings.state_dir.mkdir(exist_ok=True)
        url = parse_connector(f"{kind}:{self.folder}/out.{kind}{options}" + ("&null=" if kind == "csv" else ""))
        self.sink: Any = open_sink(url, Row, origin=SinkOrigin("app", 1, by_epoch=True, run=RUN, step="out"))
        self.digests: tuple[bytes, ...] = ()

    def write(self, first: int, count: int) -> None:
        self.sink.write([row(n) for n in range(first, first + count)])

    def commit(self) -> None:
        """In the register; the sink is never notified."""
        self.keep(self.sink.prepare(), WriterAbilities.of(self.sink).identity.encode())

    def keep(self, ends: tuple[int, ...], identity: bytes) -> None:
        header = SnapshotHeader(7, 1, 2, 2, 0, ("out",), True)
        folder = run_folder(self.settings.state_dir, "app", 1)
        self.digests = (write_snapshot(folder, header, [b"snapshot", msgspec.msgpack.encode(ends), identity])[0],)

    def show(self) -> list[str]:
        return asyncio.run(publish_ended_files(self.settings, CommitLogs(1, "app", 1, 2, self.digests)))

    def leave(self) -> list[str]:
        return asyncio.run(finish_remaining_files(self.settings, ForgetRun("app", 1, self.digests)))

    def names(self) -> list[str]:
        return sorted(one.name for one in self.folder.iterdir())

    def rows(self) -> list[Row]:
        found: list[Row] = []
        for name in self.names():
            if not name.endswith(".part"):
                found += taken(open_source(parse_connector(f"{self.kind}:{self.folder}/{name}"), Row)).rows
        return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_whose_process_died_at_its_end_is_finished(tmp_path: Path, kind: str) -> None:
    run = Ended(tmp_path, kind)
    run.write(0, 250)
    run.sink.at_end_of_input()
    run.commit()
    run.sink.close()
    assert run.rows() == []
    for _ in range(2):
        assert run.show() == []
        assert run.rows() == [row(n) for n in range(250)]
        assert run.names() == [f"out-00001.{kind}"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", ["?roll_bytes=64MiB", "?roll_bytes=1KiB"])
def test_a_run_stopped_within_a_file_keeps_its_committed_part(tmp_path: Path, kind: str, options: str) -> None:
    run = Ended(tmp_path, kind, options)
    run.write(0, 130)
    run.sink.flush()
    run.write(130, 40)
    run.commit()
    run.write(170, 400)  # of no epoch that is committed
    run.sink.flush()
    run.sink.close()
    for _ in range(2):
        assert run.leave() == []
        assert run.rows() == [row(n) for n in range(170)]
        assert not [name for name in run.names() if name.endswith(".part")]


def test_one_parquet_file_of_a_stopped_run_is_completed(tmp_path: Path) -> None:
    run = Ended(tmp_path, "parquet", "")
    run.write(0, 130)
    run.commit()
    run.write(130, 9)
    run.sink.close()
    assert run.leave() == []
    assert (run.names(), run.rows()) == (["out.parquet"], [row(n) for n in range(130)])


def test_a_name_assigned_before_the_pending_rows_were_lost_is_used_once(tmp_path: Path) -> None:
    run = Ended(tmp_path, "parquet")
    run.write(0, 130)
    run.commit()
    run.sink.close()
    rows = run.folder / f"out-00001.parquet.{RUN:016x}.out.rows.part"
    kept = rows.read_bytes()
    assert run.leave() == []
    rows.write_bytes(kept)
    assert run.leave() == []
    assert (run.names(), run.rows()) == (["out-00001.parquet"], [row(n) for n in range(130)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_running_writer_is_waited_for(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Ended(tmp_path, kind)
    run.write(0, 50)
    run.commit()
    with pytest.raises(OperationFailed, match="is being written by another process"):
        run.show()
    monkeypatch.setattr(ended_sink_files, "TRIES", 1)
    (told,) = run.leave()
    assert "rows of the last epoch of app stay in files that end in .part: out: " in told
    run.sink.close()
    assert run.show() == []
    assert run.rows() == [row(n) for n in range(50)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_spoilt_file_is_reported_and_does_not_block_others(tmp_path: Path, kind: str) -> None:
    run = Ended(tmp_path, kind)
    run.write(0, 50)
    run.commit()
    run.sink.close()
    held = next(path for path in run.folder.iterdir() if path.name.endswith("rows.part") or kind != "parquet")
    os.truncate(held, 7)
    (told,) = run.show()
    assert "rows of the last epoch of app are in no file of their own: out: " in told
    assert "somebody has changed it" in told


@pytest.mark.parametrize("byte", [b"\0", b"\1", b"\xff"])
@pytest.mark.parametrize(
    ("is_known", "said"), [(True, "somebody has changed it"), (False, "out-00001.parquet cannot be written")]
)
def test_invalid_pending_rows_are_reported(tmp_path: Path, byte: bytes, is_known: bool, said: str) -> None:
    run = Ended(tmp_path, "parquet")
    run.write(0, 50)
    ends, identity = run.sink.prepare(), WriterAbilities.of(run.sink).identity.encode()
    if not is_known:  # as an older version wrote it
        place = parse_pending_place(identity.decode())
        assert place is not None
        identity = msgspec.structs.replace(place, seal=None).text.encode()
    run.keep(ends, identity)
    run.sink.close()
    held = run.folder / f"out-00001.parquet.{RUN:016x}.out.rows.part"
    held.write_bytes(held.read_bytes()[:4] + byte * (held.stat().st_size - 4))
    (told,) = run.show()
    assert said in told


@pytest.mark.skipif(not landlock.is_there(), reason="no Landlock here")
def test_files_of_the_agent_are_not_touched(tmp_path: Path) -> None:
    """Users' code writes snapshots; the agent may write everywhere."""
    run = Ended(tmp_path, "csv")
    run.sink.close()
    secret = run.settings.state_dir / f"node.{RUN:016x}.out.part"
    secret.write_text("the key")
    place = PendingPlace("csv", str(run.settings.state_dir / "node"), False, RUN, "out")
    run.keep((1, 3), place.text.encode())
    with pytest.raises(OperationFailed, match="cannot be written: permission denied"):
        run.show()
    assert secret.read_text() == "the key"


@pytest.mark.parametrize(
    "text", ["files ", "files {}", 'files {"kind":"csv","path":"out","rolls":true,"run":1,"step":"x"}']
)
def test_an_invalid_path_is_refused(text: str) -> None:
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        parse_pending_place(text)
    assert parse_pending_place("0123456789abcdef") is None
