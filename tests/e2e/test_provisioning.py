"""A gate leases agents for work that waits, and releases them, on real agents; a gate that is killed forgets none."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.gate.local_provider import _processes
from tests.e2e.mesh import COMMAND, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

GATE = """
[gate]
name = "gw"
mode = "{mode}"
max_hosts = 1
max_spend = 100.0
high = 0
round = "3s"
listing_delay = "2s"
orphan = "20s"
grace = "20s"
silence = "10s"
[provider]
kind = "local"
price = 0.1
btu = "40s"
capacity = 8
folder = "{folder}"
"""

APPLICATION = """
from datetime import UTC, datetime
from typing import NamedTuple
from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    number: int


def at(reading: Reading) -> datetime:
    return datetime.fromtimestamp(reading.number / 100, UTC)


def square(reading: Reading) -> Reading:
    return Reading(reading.number**2)


def squares(readings: Source[Reading], out: Sink[Reading]) -> Topology:
    topology = Topology("squares")
    topology.source("readings", readings, rows=Reading, event_time=at).map(square, name="square").sink("out", out)
    return topology
"""
ROWS = 1_500


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mesh]:
    """Two agents with room for three instances each."""
    monkeypatch.setenv("AGILEDART_AGENT__CAPACITY", "3")
    with mesh(2) as made:
        yield made


class Gate:
    """A gate as a process, and the agents that it has leased."""

    def __init__(self, ring: Mesh, folder: Path, mode: str = "act") -> None:
        self.ring, self.folder = ring, folder
        self.hosts = Path(tempfile.mkdtemp(prefix="adh-", dir="/tmp"))  # paths of sockets are short
        (folder / "gate.toml").write_text(GATE.format(mode=mode, folder=self.hosts))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "gate.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "provision", "run", str(self.folder / "gate.toml"), "--folder", str(self.folder / "gate"),
                 "--agent", str(self.ring.agents[0].state_dir)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def kill_after(self, seconds: float) -> None:
        """Kill it in the middle of whatever it does then."""
        assert self.process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def running(self) -> dict[str, int]:
        return _processes(self.hosts)

    def ledger(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in (self.folder / "gate" / "ledger").glob("*.json")]

    def until(self, condition: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait for a condition; a failure shows the gate's log."""
        try:
            return wait_for(condition, seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from None

    def log(self) -> str:
        return (self.folder / "gate.log").read_text()


@pytest.fixture
def gate(ring: Mesh, tmp_path: Path) -> Iterator[Gate]:
    made = Gate(ring, tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()
    for pid in made.running().values():
        os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(made.hosts)


def submit(ring: Mesh, folder: Path, name: str = "squares", copies: int = 5) -> "subprocess.Popen[bytes]":
    """Submit an application at the second agent; with its source and sink it needs two instances more than `copies`."""
    (folder / "squares.py").write_text(APPLICATION)
    (folder / "in.csv").write_text("number\n" + "".join(f"{number}\n" for number in range(ROWS)))
    agent = str(ring.agents[1].state_dir)
    with (folder / "gate.log").open("ab") as log:
        return subprocess.Popen(
            [*COMMAND, "submit", f"{folder / 'squares.py'}:squares", "--name", name,
             "--parallelism", f"square={copies}", "--agent", agent,
             "--set", f"readings=csv:{folder / 'in.csv'}?speed=1", "--set", f"out=csv:{folder / f'{name}.csv'}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip


def state(ring: Mesh, name: str = "squares") -> str:
    shown = cli("status", name, "-o", "json", "--agent", str(ring.agents[0].state_dir))
    return str(json.loads(shown.stdout)["state"]) if shown.returncode == 0 else ""


def reports(ring: Mesh) -> list[Any]:
    shown = cli("provision", "status", "-o", "json", "--agent", str(ring.agents[1].state_dir))
    return list(json.loads(shown.stdout)["gates"])


def check_results(folder: Path) -> None:
    lines = (folder / "squares.csv").read_text().split()
    assert [int(line) for line in lines] == [number**2 for number in range(ROWS)]


def test_a_waiting_application_gets_a_host_which_is_released_at_the_end_of_its_paid_time(
    ring: Mesh, gate: Gate, tmp_path: Path
) -> None:
    gate.start()
    gate.until(lambda: reports(ring), 60, "the gate reports")
    submission = submit(ring, tmp_path)
    gate.until(lambda: state(ring) in ("running", "finished"), 120, "squares runs")
    assert len(gate.running()) == 1
    wait_for(lambda: state(ring) == "finished", 120, "squares has ended")
    submission.wait(30)
    check_results(tmp_path)
    gate.until(lambda: not gate.running(), 120, "the host is released")
    (entry,) = wait_for(lambda: [row for row in gate.ledger() if row["state"] == "ended"], 30, "the lease is over")
    paid_until = entry["began_ns"] + entry["units"] * entry["btu_ns"]
    assert 0 <= paid_until - entry["ended_ns"] <= 24 * 10**9, "it ends inside of its window"
    audit = cli("audit", "-o", "json", "--agent", str(ring.agents[0].state_dir)).stdout
    noted = {
        row["details"].split("action=")[1].split()[0] for row in json.loads(audit)["rows"] if row["action"] == "lease"
    }
    assert {"lease", "joined", "drain", "release"} <= noted


def test_a_gate_that_advises_starts_nothing(ring: Mesh, tmp_path: Path) -> None:
    advising = Gate(ring, tmp_path, "advise")
    advising.start()
    submit(ring, tmp_path, "first", 3)
    wait_for(lambda: state(ring, "first") == "running", 60, "the first application takes five of six places")
    submission = submit(ring, tmp_path, copies=3)
    try:
        wait_for(lambda: "would lease: squares waits for capacity" in advising.log(), 60, "the gate says it")
        assert advising.running() == {}
        assert advising.ledger() == []
    finally:
        advising.kill()
        submission.kill()


CANARY = "canary-of-the-cloud-account"


def holds_canary(*folders: Path) -> list[str]:
    """Files that contain the credential."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if CANARY.encode() in path.read_bytes()]


def test_credentials_stay_in_the_gate_and_a_token_works_once(
    ring: Mesh, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGILEDART_CLOUD_KEY", CANARY)
    monkeypatch.setenv("AGILEDART_CLOUD_SECRET", CANARY)
    gate.start()
    assert gate.process is not None
    assert CANARY.encode() in Path(f"/proc/{gate.process.pid}/environ").read_bytes(), "the gate has it"
    gate.until(lambda: reports(ring), 60, "the gate reports")
    submission = submit(ring, tmp_path)
    try:
        gate.until(lambda: state(ring) == "running", 120, "squares runs")
        ((host, pid),) = gate.running().items()
        assert CANARY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        state_folders = [Path(agent.state_dir) for agent in ring.agents]
        assert holds_canary(gate.hosts, gate.folder / "gate", *state_folders) == []
        assert CANARY not in cli("audit", "-o", "json", "--agent", str(ring.agents[0].state_dir)).stdout
        assert CANARY not in json.dumps(reports(ring))
        token = (gate.hosts / host / "token").read_text()
        second = subprocess.run(
            [*COMMAND, "agent", "--state-dir", str(tmp_path / "second"), "--name", "second", "--listen", "127.0.0.1:0",
             "--metrics", "127.0.0.1:0", "--join", token],
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert second.returncode != 0
        assert "token" in second.stderr
    finally:
        submission.kill()


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_killed_gate_leaves_no_host_and_no_unpaid_unit(
    is_restarted: bool, ring: Mesh, gate: Gate, tmp_path: Path
) -> None:
    moments = random.Random(7)
    gate.start()
    gate.until(lambda: reports(ring), 60, "the gate reports")
    submission = submit(ring, tmp_path)
    for number in range(10 if is_restarted else 1):
        if number:
            gate.start()
        if not is_restarted:
            wait_for(lambda: len(gate.running()) == 1, 60, "a host runs")
        gate.kill_after(moments.uniform(1.0, 8.0))
        assert len(gate.running()) <= 1
    submission.kill()
    assert cli("stop", "squares", "--now", "--agent", str(ring.agents[0].state_dir)).returncode == 0
    if is_restarted:
        gate.start()
    gate.until(lambda: not gate.running(), 180, "no host runs")
    if is_restarted:
        live = {"asked", "starting", "joined", "draining", "releasing"}
        wait_for(lambda: not any(row["state"] in live for row in gate.ledger()), 60, "no lease is open")
    assert all(row["units"] >= 1 for row in gate.ledger() if row["host_id"])
