"""Users' code tries every path of the agent's state directory, its socket and its neighbours, and gets at none of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_executor.snapshots.snapshot_file import EXECUTOR_FOLDERS
from agiledart_executor.user_code import landlock
from agiledart_executor.user_code.confinement import writable_code_folders
from tests.e2e.mesh import Mesh, cli, mesh

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not landlock.is_there(), reason="the kernel has no Landlock: users' code is not confined here"),
]

CODE = '''
"""Tries all that a thief would."""
import os, socket, struct
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Folder(NamedTuple):
    at: datetime
    path: str

class Tried(NamedTuple):
    action: str
    path: str
    came: str

def outcome(action, path, call):
    try:
        return Tried(action, str(path), f"done {call()}"[:60].encode("unicode_escape").decode())
    except OSError as error:
        return Tried(action, str(path), error.strerror or str(error))

def ask(path):
    """A question at the agent's socket, without action only its owner can read."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.settimeout(10)
        made.connect(str(path))
        made.sendall(struct.pack(">IB", 5, 2) + b"\\x93\\x01\\x01\\x91\\x00")
        return made.recv(1000) or "hung up"

def attempts(folder: Folder) -> list[Tried]:
    root, tried = Path(folder.path), []
    for above, folders, files in os.walk(root):
        for name in files:
            path = Path(above, name)
            if name == "control.sock":
                tried.append(outcome("ask", path, lambda: ask(path)))
                continue
            tried.append(outcome("read", path, lambda: path.read_bytes()))
            tried.append(outcome("write", path, lambda: path.open("r+b").close()))
            tried.append(outcome("empty", path, lambda: os.truncate(path, 0)))
            tried.append(outcome("link", path, lambda: os.link(path, "stolen-" + name)))
            tried.append(outcome("remove", path, lambda: path.unlink()))
        tried.append(outcome("make", above, lambda: Path(above, "mine").write_text("x")))
    pid = (root / "lock").stat() and os.getppid()
    for name in ("environ", "mem", "maps", "cwd/node.key", "root/etc/hostname"):
        tried.append(outcome("peek", f"/proc/{pid}/{name}", lambda: open(f"/proc/{pid}/{name}", "rb").read(10)))
    tried.append(outcome("signal", pid, lambda: os.kill(pid, 0)))
    Path("relative.txt").write_text("what is mine I may write")
    return tried

def build(folders: Source[Folder], report: Sink[Tried], name: str = "thief") -> Topology:
    topology = Topology(name)
    topology.source("folders", folders, event_time=lambda row: row.at).flat_map(attempts).sink("report", report)
    return topology

def plain(folders: Source[Folder], report: Sink[Folder], name: str = "plain") -> Topology:
    topology = Topology(name)
    topology.source("folders", folders, event_time=lambda row: row.at).sink("report", report)
    return topology
'''

SECRETS = {"node.key", "authority.key", "network.json", "control.cookie", "incarnation"}


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with mesh(2) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, ring: Mesh) -> Path:
    (tmp_path / "thief.py").write_text(CODE)
    rows = [f"2024-01-01 00:00:0{n},{agent.state_dir}\n" for n, agent in enumerate(ring.agents)]
    (tmp_path / "in.csv").write_text("".join(rows))
    return tmp_path


def submit(made: Mesh, folder: Path, builder: str, report: str, **more: str) -> Any:
    """Runs at a1 until its end."""
    settings = [word for name, text in more.items() for word in ("--set", f"{name}={text}")]
    return cli(
        "submit", f"thief.py:{builder}", "--wait", "-o", "json", "--agent", str(made.agent("a1").state_dir),
        "--set", "folders=csv:in.csv@a1", "--set", f"report={report}@a1", *settings, cwd=folder,
    )  # fmt: skip


def test_no_path_of_a_state_directory_is_open_to_user_code(ring: Mesh, folder: Path) -> None:
    told = submit(ring, folder, "plain", "log:theirs", name="theirs")
    assert told.returncode == 0, told.stderr
    before = {path: path.read_bytes() for path in all_files(ring)}
    told = submit(ring, folder, "build", f"jsonl:{folder}/tried.jsonl")
    assert told.returncode == 0, told.stderr
    tried = [json.loads(line) for line in (folder / "tried.jsonl").read_text().splitlines()]
    (host,) = json.loads(told.stdout)["placement"]["attempts"]
    saved = [f"runs/thief.1/{kind}" for kind in EXECUTOR_FOLDERS]  # its own snapshots and open files, since it is saved
    own = [ring.agent(host).state_dir / kind for kind in ("work/thief", "sink-logs/_latency.thief", *saved)]
    done = [row for row in tried if row["came"].startswith("done") and row["came"] != "done hung up"]
    outside = [row for row in done if not any(Path(row["path"]).is_relative_to(folder) for folder in own)]
    assert not outside, sorted({(row["action"], row["path"]) for row in outside})
    assert {"read", "write", "empty", "link", "remove", "make", "ask", "peek", "signal"} == {
        row["action"] for row in tried
    }
    assert {Path(row["path"]).name for row in tried} >= SECRETS
    assert any("sink-logs/theirs" in row["path"] for row in tried)
    for agent in ring.agents:
        assert str(agent.state_dir / "node.key") in {row["path"] for row in tried}
    after = {path: path.read_bytes() for path in before if path.exists()}
    for path, content in before.items():
        if path.name in SECRETS or "sink-logs" in path.parts:
            assert after[path] == content, path
    assert (own[0] / "files" / "relative.txt").read_text() == "what is mine I may write"


def all_files(made: Mesh) -> list[Path]:
    return [path for agent in made.agents for path in agent.state_dir.rglob("*") if path.is_file()]


def test_a_sink_cannot_name_files_of_the_agent(ring: Mesh, folder: Path) -> None:
    for name in ("peers.json", "new.csv", "sink-logs/other/lock"):
        told = submit(ring, folder, "plain", f"csv:{ring.agent('a1').state_dir}/{name}")
        assert told.returncode == 1
        assert (
            "lies in the agent's state directory, which is closed to user code. Give it a file elsewhere" in told.stderr
        )
        assert "Traceback" not in told.stderr


def test_a_new_file_above_the_state_directory_is_written(ring: Mesh, folder: Path) -> None:
    out = ring.folder / "out.csv"
    told = submit(ring, folder, "plain", f"csv:{out}")
    assert told.returncode == 0, told.stderr
    assert len(out.read_text().splitlines()) == 2
    told = submit(ring, folder, "plain", f"csv:{out}?roll_bytes=1000000")
    assert told.returncode == 1
    assert "makes new files in" in told.stderr
    assert f"Give it a folder of its own below {ring.folder}" in told.stderr


def test_rolled_files_in_the_users_own_folder_are_written(ring: Mesh, folder: Path) -> None:
    told = submit(ring, folder, "plain", f"csv:{folder}/out.csv?roll_bytes=1000000")
    assert told.returncode == 0, told.stderr
    assert len((folder / "out-00001.csv").read_text().splitlines()) == 2


def test_missing_confinement_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGILEDART_AGENT__CONFINE", "false")
    with mesh(1) as made:
        told = submit(made, folder, "plain", f"csv:{folder}/out.csv")
        assert told.returncode == 0, told.stderr
        assert "your code can read the keys of a1: there it is not confined (agiledart doctor says why)" in told.stderr
        exposed = "your code can change the Python of a1: its agent's user may write there" in told.stderr
        assert exposed == bool(writable_code_folders()), told.stderr
