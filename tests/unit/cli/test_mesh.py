"""Throw-away meshes of real agents: they come up, and however they end nothing is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agiledart_cli.signals import deferred
from agiledart_cli.verbs.cluster import Mesh
from agiledart_node.wire.commands import Nodes

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GONE_SECONDS = 20.0
"""The promise is 10; a loaded machine that runs the tests gets twice that."""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short folder for temporary files, so that what is left can be seen, and a state directory of its own."""
    folder = Path(tempfile.mkdtemp(prefix="adm-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def _until(condition: Callable[[], bool], what: str, seconds: float = GONE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(0.05)


def _processes(folder: Path) -> list[int]:
    """Processes that have the folder in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in line:
                found.append(int(entry.name))
    return found


def _nothing_left(folder: Path) -> None:
    _until(lambda: not _processes(folder), f"processes are left: {_processes(folder)}")
    _until(lambda: not list(folder.glob("agiledart-*")), f"files are left: {list(folder.iterdir())}")
    assert not (folder / "state" / "agiledart" / "mesh.json").exists()


def _up(folder: Path, agents: int = 3) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "agiledart_cli.main", "up", "--agents", str(agents), "-o", "json"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _ready(mesh: "subprocess.Popen[str]") -> list[dict[str, object]]:
    assert mesh.stdout is not None
    text = ""
    while not text or text.count("{") != text.count("}"):
        line = mesh.stdout.readline()
        assert line, "the mesh ended before it was ready"
        text += line
    agents: list[dict[str, object]] = json.loads(text)["agents"]
    return agents


def test_a_mesh_forms_one_ring_and_leaves_nothing(place: Path) -> None:
    joined: list[int] = []
    with Mesh(3) as mesh:
        mesh.start(joined.append)
        with mesh.client(1) as client:
            assert sorted(node["name"] for node in client.ask(Nodes())["nodes"]) == ["a1", "a2", "a3"]
        assert mesh.folder.is_dir()
        assert not (mesh.folder / "token").exists()
    assert joined[-1] == 3
    _nothing_left(place)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nothing_is_left_however_up_ends(place: Path, number: signal.Signals) -> None:
    mesh = _up(place)
    agents = _ready(mesh)
    assert len(agents) == 3
    mesh.send_signal(number)
    _, talk = mesh.communicate(timeout=GONE_SECONDS)
    assert mesh.returncode == {signal.SIGINT: 130, signal.SIGKILL: -9}.get(number, 143)
    assert "Traceback" not in talk
    if number == signal.SIGKILL:  # no process was left to remove the note; it names a process that is gone
        (place / "state" / "agiledart" / "mesh.json").unlink()
    _nothing_left(place)


def test_an_interrupt_during_agent_start_leaves_nothing(place: Path) -> None:
    mesh = _up(place)
    _until(lambda: len(_processes(place)) >= 2, "no agent was started")
    mesh.send_signal(signal.SIGINT)
    mesh.communicate(timeout=GONE_SECONDS)
    assert mesh.returncode == 130
    _nothing_left(place)


def test_a_mesh_survives_a_dying_agent_and_reports_it(place: Path) -> None:
    mesh = _up(place)
    agents = _ready(mesh)
    os.kill(int(str(agents[2]["pid"])), signal.SIGKILL)
    assert mesh.stderr is not None
    talk = ""
    while "a3 was killed by SIGKILL" not in talk:
        line = mesh.stderr.readline()
        assert line, talk
        talk += line
    assert mesh.poll() is None
    mesh.send_signal(signal.SIGTERM)
    mesh.communicate(timeout=GONE_SECONDS)
    _nothing_left(place)


def test_a_signal_waits_for_the_end_of_a_critical_section() -> None:
    steps: list[str] = []
    before = signal.getsignal(signal.SIGINT)  # of Spark, where a test has started it in this process

    def interrupted() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            steps.append("still here")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["still here"]
    assert signal.getsignal(signal.SIGINT) is before
