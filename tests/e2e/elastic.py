"""A job whose keyed step waits for each of its rows, fed over TCP at a rate that changes: for stages that scale themselves."""

import socket
import threading
import time
from pathlib import Path
from typing import Any

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.commands import ExplainScaling, Status
from tests.e2e.mesh import Mesh, cli, wait_for
from tests.e2e.plug import FINAL

CODE = """
import time
from typing import NamedTuple

from agiledart import Change, Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def build(readings: Source[Reading], report: Sink[Change], name: str = "elastic", pause_ms: int = 0) -> Topology:
    def add(sum_so_far: Reading, reading: Reading) -> Reading:
        time.sleep(pause_ms / 1_000)
        return Reading(reading.at, reading.key, sum_so_far.value + reading.value)

    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.key_by(lambda reading: reading.key).reduce("sums", add).sink("report", report)
    return topology
"""


def line(number: int) -> str:
    return f"{number},{number % 97},{number * number % 101}\n"


def write_input(folder: Path, count: int) -> None:
    """Put code and input into a folder; with `speed=1` a thousand lines last a second."""
    (folder / "elastic.py").write_text(CODE)
    (folder / "rows.csv").write_text("".join(map(line, range(count))))


def undisturbed(folder: Path, count: int) -> str:
    """Put code and input into a folder; return the output of one undisturbed process."""
    write_input(folder, count)
    told = cli(
        "run", "elastic.py:build", "--set", "readings=csv:rows.csv", "--set", "report=csv:expected.csv", cwd=folder
    )
    assert told.returncode == 0, told.stderr
    return (folder / "expected.csv").read_text()


class Feeder:
    """Sends lines at a rate, from a thread of its own; each once.

    Attributes:
        rate: lines a second from now on; 0: nothing.
        sent: lines so far.
    """

    def __init__(self, port: int, count: int) -> None:
        self.port, self.count, self.rate, self.sent = port, count, 0.0, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        def dial() -> socket.socket | None:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1)
            except OSError:
                return None

        self._socket: socket.socket = wait_for(dial, 60, "the source listens")
        self._thread.start()

    def _run(self) -> None:
        due, last = 0.0, time.monotonic()
        while not self._over.is_set() and self.sent < self.count:
            time.sleep(0.02)
            now = time.monotonic()
            due, last = due + (now - last) * self.rate, now
            number = min(int(due), self.count - self.sent)
            if number:
                self._socket.sendall("".join(line(self.sent + n) for n in range(number)).encode())
                self.sent, due = self.sent + number, due - number

    def send_up_to(self, count: int) -> None:
        """No more than so many lines in all; returns when they are sent."""
        self.count = max(count, self.sent)
        self._thread.join()

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._socket.close()


class Elastic:
    """The job on a mesh: source and sink on a1, the step with state wherever it finds room."""

    def __init__(self, ring: Mesh, folder: Path, name: str, *more: str, source: str, pause_ms: int) -> None:
        self.ring, self.name, self.out = ring, name, folder / f"{name}.csv"
        told = cli(
            "submit", "elastic.py:build", "--set", f"readings={source}@a1", "--set", f"report=csv:{self.out}@a1",
            "--set", f"name={name}", "--set", f"pause_ms={pause_ms}",
            "--agent", str(ring.agents[0].state_dir), *more, cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr

    def cli(self, *words: str) -> str:
        told = cli(*words, "--agent", str(self.ring.agents[0].state_dir))
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout

    def status(self) -> dict[str, Any]:
        """As any agent that answers sees it; nothing while none does."""
        for agent in self.ring.living():
            try:
                return dict(agent.ask(Status(self.name)))
            except (CommandRefusedError, NoAgentError, OSError):
                continue
        return {"state": "", "placement": {}}

    def scaling(self) -> dict[str, Any]:
        return dict(self.ring.agents[0].ask(ExplainScaling(self.name)))

    def instances(self) -> int:
        return len(self.status()["placement"].get("sums", ()))

    def read(self) -> int:
        """Lines that the source has read."""
        stages = {stage["name"]: stage["instances"] for stage in self.status().get("stages", ())}
        return sum(one["steps"]["readings"]["rows_in"] for one in stages.get("readings", ()) if one.get("steps"))

    def changes(self) -> list[dict[str, Any]]:
        return list(self.scaling()["changes"])

    def before_step(self) -> int | None:
        """Rows that have left the source and that the step has not worked off; None where an instance has not reported yet."""
        stages = {stage["name"]: stage["instances"] for stage in self.status().get("stages", ())}
        told = [*stages.get("readings", ()), *stages.get("sums", ())]
        if len(told) < 2 or not all(one.get("steps") for one in told):
            return None
        done = sum(one["steps"]["sums"]["rows_in"] for one in stages["sums"])
        return int(sum(one["steps"]["readings"]["rows_out"] for one in stages["readings"]) - done)

    def committed(self) -> int:
        epoch = self.status().get("epoch") or {}
        return int(epoch.get("committed", 0))

    def until_over(self) -> dict[str, Any]:
        return dict(wait_for(lambda: (told := self.status())["state"] in FINAL and told, 120, f"{self.name} ends"))
