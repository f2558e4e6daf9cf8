"""How `checkpoint` looks."""

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_agent.checkpoints.checkpoint_file import CheckpointFileWriter, CheckpointManifest
from agiledart_cli.main import run_cli
from agiledart_cli.verbs.application_view import print_checkpoints
from agiledart_cli.verbs.state import checkpoint_verbs, restoring
from agiledart_control.errors import CommandRefusedError
from agiledart_control.submission import make_submission
from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_node.wire.checkpoint_commands import Checkpoints, ExportCheckpoint, RemoveCheckpoint
from agiledart_node.wire.commands import Submit
from agiledart_node.wire.transfer_commands import ReadCheckpoint, UploadCheckpoint

EPOCH = {
    "committed": 7,
    "attempt": 2,
    "age_s": 3.0,
    "duration_ms": 40.0,
    "bytes": 5000,
    "tolerated_losses": 2,
    "coordinator": "a2",
}
ELEMENT = {
    "stage": "sums",
    "index": 1,
    "node": "a2",
    "epoch": 7,
    "attempt": 2,
    "bytes": 4096,
    "fragments_needed": 1,
    "replica_nodes": ["a3", "a4"],
}


KEPT = {
    "name": "pause",
    "application": "job",
    "version": 1,
    "attempt": 2,
    "epoch": 7,
    "taken_ms": 1_700_000_000_000,
    "bytes": 5_000,
    "digest": "ab" * 32,
    "nodes": ["a1", "a2"],
}


class Exported:
    """An agent that can be asked."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Client(Exported):
    """An agent that has one answer."""

    asked: Any = None

    def ask(self, command: Checkpoints, timeout: float = 0.0) -> dict[str, Any]:
        """Keeps the question."""
        Client.asked = command
        source = ELEMENT | {"stage": "rows", "index": 0, "node": "a1", "fragments_needed": 0, "replica_nodes": []}
        return {
            "name": "job",
            "version": 1,
            "state": "running",
            "recovery": None,
            "epoch": EPOCH,
            "snapshots": [source, ELEMENT],
        }


@pytest.mark.parametrize(("verb", "take"), [("list", False), ("take", True)])
def test_each_snapshot_has_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, take: bool
) -> None:
    monkeypatch.setattr(checkpoint_verbs, "connect", lambda agent, identity: Client())
    assert run_cli(["checkpoint", verb, "job"]) == 0
    assert Client.asked == Checkpoints("job", take)
    told = capsys.readouterr().out
    assert "job v1: checkpoint 7 committed, 3.00 s ago; survives the loss of 2 machines" in told
    (line,) = (line for line in told.splitlines() if line.startswith(" sums"))
    assert line.split() == ["sums", "1", "a2", "7", "(attempt", "2)", "4,096", "any", "1", "of", "a3,", "a4"]
    assert "its node only" in told


def test_each_retained_checkpoint_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    body = {
        "name": "job",
        "version": 2,
        "state": "stopped",
        "recovery": None,
        "epoch": None,
        "snapshots": [],
        "retained": [KEPT],
    }
    print_checkpoints(body)
    told = capsys.readouterr().out
    assert "job v2: stopped; retained checkpoints:" in told
    (line,) = (line for line in told.splitlines() if line.startswith(" pause"))
    assert line.split()[:5] == ["pause", "job", "v1", "7", "(attempt"]
    assert line.endswith("a1, a2")


class Exporting(Exported):
    """An agent that has one checkpoint, and gives 1,000 bytes at a time."""

    def __init__(self, raw: bytes, digest: bytes) -> None:
        self.raw, self.digest = raw, digest

    def ask(self, command: Any, *, on_progress: Any = None, timeout: float = 0.0) -> dict[str, Any]:
        if isinstance(command, ExportCheckpoint):
            on_progress("job: its newest committed epoch is put into one file")
            return KEPT | {"bytes": len(self.raw), "digest": self.digest.hex()}
        assert isinstance(command, ReadCheckpoint)
        piece = self.raw[command.offset : command.offset + 1_000]
        return {"data": base64.b64encode(piece).decode(), "left": len(self.raw) - command.offset - len(piece)}


def archive(folder: Path) -> tuple[bytes, bytes]:
    """A checkpoint without snapshots; its bytes and hash."""
    path = folder / "made"
    made = CheckpointFileWriter(path)
    digest, _ = made.close(CheckpointManifest(1, "0", 2, "pause", "job", 1, 2, 7, 0, b"", [], b"s" * 3_000, b"p", []))
    return path.read_bytes(), digest


def test_export_writes_a_complete_private_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    raw, digest = archive(tmp_path)
    monkeypatch.setattr(checkpoint_verbs, "connect", lambda agent, identity: Exporting(raw, digest))
    target = tmp_path / "out.checkpoint"
    assert run_cli(["checkpoint", "export", "job", "--output", str(target)]) == 0
    assert target.read_bytes() == raw
    assert target.stat().st_mode & 0o777 == 0o600
    told = capsys.readouterr()
    assert "newest committed epoch" in told.err
    assert run_cli(["checkpoint", "export", "job", "--output", str(target)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert run_cli(["checkpoint", "export", "job", "--output", str(target), "--force", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(target)
    assert run_cli(["checkpoint", "export", "job", "--output", str(tmp_path / "no" / "x")]) == 2


@pytest.mark.parametrize("fault", ["bit", "short", "other"])
def test_an_incomplete_file_is_not_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, fault: str
) -> None:
    raw, digest = archive(tmp_path)
    agent = Exporting(raw, digest)
    if fault == "bit":
        agent.raw = raw[:3_500] + bytes([raw[3_500] ^ 1]) + raw[3_501:]
    elif fault == "short":
        agent.raw = raw[:-40]
    else:
        agent.digest = b"x" * 32
    monkeypatch.setattr(checkpoint_verbs, "connect", lambda agent_, identity: agent)
    assert run_cli(["checkpoint", "export", "job", "--output", str(tmp_path / "out")]) == 1
    assert "Try again" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_ctrl_c_during_an_export_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    raw, digest = archive(tmp_path)

    class Pressed(Exporting):
        def ask(self, command: Any, **more: Any) -> dict[str, Any]:
            if isinstance(command, ReadCheckpoint) and command.offset:
                raise KeyboardInterrupt
            return super().ask(command, **more)

    monkeypatch.setattr(checkpoint_verbs, "connect", lambda agent, identity: Pressed(raw, digest))
    assert run_cli(["checkpoint", "export", "job", "--output", str(tmp_path / "out")]) == 130
    assert "Traceback" not in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_remove_reports_where_the_checkpoint_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Removing(Exported):
        def ask(self, command: Any, **_: Any) -> dict[str, Any]:
            assert command == RemoveCheckpoint("pause")
            return {"name": "pause", "application": "job", "nodes": ["a1", "a2"]}

    monkeypatch.setattr(checkpoint_verbs, "connect", lambda agent, identity: Removing())
    assert run_cli(["checkpoint", "remove", "pause"]) == 0
    assert "pause of job is removed from a1, a2." in capsys.readouterr().err


TOPOLOGY = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Pane, Sink, Source, Topology, sum_of, tumbling


class Row(NamedTuple):
    at: int
    key: int


def build(rows: Source[Row], out: Sink[Pane], name: str = "job", step: str = "sums") -> Topology:
    topology = Topology(name)
    read = topology.source("rows", rows, event_time=lambda row: row.at)
    sums = read.key_by(lambda row: row.key).window(tumbling(timedelta(seconds=1)))
    sums.aggregate(step, sum_of(lambda row: row.at)).sink("out", out)
    return topology
"""


class Taking(Exported):
    """An agent that takes a file in two pieces, and begins with it."""

    def __init__(self) -> None:
        self.got, self.submitted = b"", list[Submit]()

    def ask(self, command: Any, **_: Any) -> dict[str, Any]:
        if isinstance(command, UploadCheckpoint):
            self.got = self.got[: command.offset] + command.data[:2_000]
            return {"have": len(self.got), "is_whole": len(self.got) == command.size}
        if isinstance(command, ExportCheckpoint):
            raise CommandRefusedError(f"There is no checkpoint {command.name}.", 1)
        self.submitted.append(command)
        return {"name": "job", "version": 2, "placement": {}, "checks": []}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Taking, Path]:
    (tmp_path / "job.py").write_text(TOPOLOGY)
    (tmp_path / "rows.csv").write_text("1,1\n")
    monkeypatch.chdir(tmp_path)
    made = make_submission("job.py:build", {"rows": "csv:rows.csv", "out": "null:"}, {})
    specification = msgspec.msgpack.decode(made.specification, type=Specification)
    plan = msgspec.msgpack.encode(plan_stages(specification, {}))
    CheckpointFileWriter(tmp_path / "job.checkpoint").close(
        CheckpointManifest(1, "0", 2, "pause", "job", 1, 2, 7, 0, b"", [], made.specification, plan, [])
    )
    agent = Taking()
    monkeypatch.setattr(restoring, "connect", lambda agent_, identity: agent)
    monkeypatch.setattr(restoring, "print_plan", lambda body, dry_run: None)
    return agent, tmp_path


WORDS = ("job.py:build", "--set", "rows=csv:rows.csv", "--set", "out=null:")


def test_restore_uploads_the_file_and_submits_with_it(
    site: tuple[Taking, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    agent, folder = site
    assert run_cli(["checkpoint", "restore", "job.checkpoint", *WORDS]) == 0
    assert agent.got == (folder / "job.checkpoint").read_bytes()
    (command,) = agent.submitted
    assert command.delivery == "survive"
    assert command.origin is not None
    assert (command.origin.kind, command.origin.about) == ("whole", "checkpoint pause of job v1, epoch 7")
    assert "rows continues reading" in capsys.readouterr().err


def test_a_dry_run_uploads_nothing(site: tuple[Taking, Path], capsys: pytest.CaptureFixture[str]) -> None:
    agent, _ = site
    words = ("--set", "step=totals", "--drop", "sums", "--dry-run", "-o", "json")
    assert run_cli(["checkpoint", "restore", "job.checkpoint", *WORDS, *words]) == 0
    assert agent.got == b""
    assert agent.submitted[0].dry_run
    told = json.loads(capsys.readouterr().out)["checkpoint"]
    assert (told["taken"], told["dropped"], told["empty"]) == (["rows"], ["sums"], ["totals"])


@pytest.mark.parametrize(
    ("words", "spoil", "said", "code"),
    [
        (
            ("job.checkpoint", *WORDS, "--set", "step=totals"),
            "",
            "the state of sums, and the topology has no such step",
            2,
        ),
        (("nothing.checkpoint", *WORDS), "", "There is no file nothing.checkpoint", 2),
        (("nothing", *WORDS), "", "There is no checkpoint nothing", 1),
        (("job.checkpoint", *WORDS), "bit", "job.checkpoint is damaged", 1),
        (("job.checkpoint", *WORDS), "short", "job.checkpoint is incomplete", 1),
        (("job.py", *WORDS), "", "job.py is not a checkpoint", 1),
        (("job.checkpoint", *WORDS, "--drop", "sumz"), "", "Did you mean sums?", 2),
    ],
    ids=["missing step", "no file", "no checkpoint", "damaged", "cut short", "another file", "wrong drop"],
)
def test_invalid_restores_are_refused(
    site: tuple[Taking, Path],
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    spoil: str,
    said: str,
    code: int,
) -> None:
    agent, folder = site
    path = folder / "job.checkpoint"
    raw = path.read_bytes()
    if spoil == "bit":
        path.write_bytes(raw[:-60] + bytes([raw[-60] ^ 1]) + raw[-59:])
    elif spoil == "short":
        path.write_bytes(raw[:-5])
    assert run_cli(["checkpoint", "restore", *words]) == code
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert not agent.submitted
