"""A join of a live and a silent source at exactly-once: epochs go on, hosts are killed, and the result is exact."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_node.wire.commands import Status
from tests.e2e.mesh import Mesh, cli, mesh, wait_for
from tests.e2e.plug import FINAL

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PAYMENTS, ORDERS = 20_000, 50

CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Joined, Sink, Source, Topology


class Row(NamedTuple):
    at: int
    key: int
    value: int


class Match(NamedTuple):
    at: int
    key: int
    both: int


def match_of(pair: Joined[int, Row, Row]) -> Match:
    return Match(max(pair.left.at, pair.right.at), pair.left.key, pair.left.value * 1_000 + pair.right.value)


def build(payments: Source[Row], orders: Source[Row], out: Sink[Match], name: str = "matches") -> Topology:
    topology = Topology(name, delivery="exactly-once")

    def keyed(step: str, source: Source[Row]):
        return topology.source(step, source, event_time=lambda row: row.at).key_by(lambda row: row.key)

    pairs = keyed("payments", payments).interval_join(
        "matched", keyed("orders", orders), earliest=timedelta(milliseconds=-400), latest=timedelta(milliseconds=400)
    )
    pairs.map(match_of, name="match").sink("out", out)
    return topology
"""


class SilentPeer:
    """Peer of the source of orders: it accepts connections, and sends nothing before `speak`."""

    def __init__(self, lines: str) -> None:
        self._lines = lines.encode()
        self._speaks = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._send, args=(connection,), daemon=True).start()

    def _send(self, connection: socket.socket) -> None:
        self._speaks.wait()
        with connection:
            connection.sendall(self._lines)

    def speak(self) -> None:
        """Send all lines, and then the end, over the connection that is open."""
        self._speaks.set()

    def close(self) -> None:
        self._speaks.set()
        self._socket.close()


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(3) as made:
            yield made


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with code and inputs, and what one undisturbed process writes."""
    folder = tmp_path_factory.mktemp("silent")
    (folder / "matches.py").write_text(CODE)
    (folder / "payments.csv").write_text("".join(f"{n},{n % 7},{n * n % 101}\n" for n in range(PAYMENTS)))
    (folder / "orders.csv").write_text("".join(f"{n * 400},{n % 7},{n}\n" for n in range(ORDERS)))
    told = cli(
        "run", "matches.py:build", "--set", "payments=csv:payments.csv", "--set", "orders=csv:orders.csv",
        "--set", "out=csv:expected.csv", cwd=folder,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return folder, (folder / "expected.csv").read_text()


class Matches:
    """The job: payments on a1, orders on a2, the sink on a1, the join wherever there is room."""

    def __init__(self, ring: Mesh, folder: Path, name: str, port: int) -> None:
        self.ring, self.name, self.out = ring, name, folder / f"{name}.csv"
        told = cli(
            "submit", "matches.py:build", "--set", f"payments=csv:{folder / 'payments.csv'}@a1",
            "--set", f"orders=tcp:127.0.0.1:{port}@a2", "--set", f"out=csv:{self.out}@a1", "--set", f"name={name}",
            "--agent", str(ring.agents[0].state_dir), cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr

    def status(self) -> dict[str, Any]:
        """As any agent that answers sees it; nothing while none does."""
        for agent in self.ring.living():
            try:
                return dict(agent.ask(Status(self.name)))
            except (CommandRefusedError, NoAgentError, OSError):
                continue
        return {"state": "", "placement": {}}

    def committed(self) -> int:
        return int((self.status().get("epoch") or {}).get("committed", 0))

    def read(self) -> int:
        """Lines of payments that are read."""
        stages = {stage["name"]: stage["instances"] for stage in self.status().get("stages", ())}
        return sum(one["steps"]["payments"]["rows_in"] for one in stages.get("payments", ()) if one.get("steps"))

    def awaited(self) -> tuple[list[str], list[str]] | None:
        """The sources that are silent, and those whose rows wait; None before they are reported."""
        instances = [instance for stage in self.status()["stages"] for instance in stage["instances"]]
        told = [instance["awaited_input"] for instance in instances if "awaited_input" in instance]
        return (told[0]["sources"], told[0]["held"]) if told else None

    def until_epochs(self, more: int) -> None:
        """Wait for so many further epochs."""
        before = self.committed()
        wait_for(lambda: self.committed() >= before + more, 60, f"{more} epochs beyond {before}")


@pytest.mark.parametrize(
    "name", ["a1", pytest.param("a2", marks=pytest.mark.soak), pytest.param("a3", marks=pytest.mark.soak)]
)
def test_epochs_go_on_and_a_kill_costs_no_row_while_one_input_is_silent(
    ring: Mesh, inputs: tuple[Path, str], name: str
) -> None:
    folder, expected = inputs
    peer = SilentPeer((folder / "orders.csv").read_text())
    try:
        job = Matches(ring, folder, f"matches-{name}", peer.port)
        wait_for(lambda: job.read() > 0, 60, "payments are read")
        job.until_epochs(2)
        assert job.read() < PAYMENTS, "the rows that wait are bounded"
        assert wait_for(job.awaited, 30, "the silent input is reported") == (["orders"], ["payments"])
        agent = ring.agent(name)
        agent.kill()
        agent.start()
        job.until_epochs(2)
        peer.speak()
        over = wait_for(lambda: (told := job.status())["state"] in FINAL and told, 120, "it ends")
        assert (over["state"], over["reason"]) == ("finished", "")
        assert job.out.read_text() == expected
    finally:
        peer.close()
