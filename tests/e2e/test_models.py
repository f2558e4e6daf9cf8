"""Models by hash on real agents: swapped under 10,000 rows a second; an unsuitable model leaves the one in use."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart.onnx_export import onnx_model
from agiledart.scoring import ModelDocument
from agiledart_dataflow.operators.model_scorer import model_version
from agiledart_experiments.queries.timed_sender import TimedSender
from agiledart_node.wire.commands import Logs, Status
from tests.e2e.mesh import Mesh, cli, mesh, wait_for

pytest.importorskip("onnxruntime", reason="no ONNX Runtime here: pip install 'agiledart[onnx]'")

pytestmark = [pytest.mark.e2e]

RATE, SECONDS = 10_000, 3

JOB = """
from datetime import timedelta
from typing import Any, NamedTuple
from agiledart import ReadTime, Sink, Source, Topology

class Air(NamedTuple):
    number: int
    celsius: float
    humidity: float
    at: ReadTime

class Name(NamedTuple):
    model: str
    at: ReadTime

LIVE = {"clock": "wall", "max_out_of_order": timedelta(milliseconds=200)}

def read_ms(row: Any) -> int:
    return row.at // 1_000_000

def as_bytes(row: Name) -> bytes:
    return row.model.encode()

def build(air: Source[Air], names: Source[Name], scored: Sink[Any]) -> Topology:
    topology = Topology("air")
    models = topology.source("names", names, event_time=read_ms, **LIVE).map(as_bytes, returns=bytes)
    rows = topology.source("air", air, event_time=read_ms, **LIVE)
    rows.score("quality", models, inputs=["celsius", "humidity"], output="quality", on_error="skip").sink("scored", scored)
    return topology
"""


@pytest.fixture(scope="module")
def three() -> Iterator[Mesh]:
    with mesh(3) as made:
        yield made


def linear(*factors: float, constant: float = 0.0) -> bytes:
    """A model that gives factors · values + constant."""
    names = tuple(f"x{number}" for number in range(len(factors)))
    return onnx_model(ModelDocument(1, "air", "1", "linear", names, constant, factors))


FIRST, SECOND = linear(2.0, 0.5, constant=1.0), linear(-1.0, 3.0)
BAD = {
    "no ONNX model": b"\x08\x09 this is not a model",
    "the model takes 3 values, and inputs= names 2": linear(1.0, 2.0, 3.0),
}


class Control:
    """The control stream's side of a TCP source."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(60)
        self.port: int = self._server.getsockname()[1]
        self._connection: socket.socket | None = None

    def send(self, line: str) -> None:
        if self._connection is None:
            self._connection, _ = self._server.accept()
        self._connection.sendall(f"{line}\n".encode())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._server.close()


class Scoring:
    """The application on the mesh, with both of its inputs."""

    def __init__(self, ring: Mesh, folder: Path, rate: int, seconds: int) -> None:
        self.ring, self.folder, self.out = ring, folder, folder / "scored.csv"
        lines = [f"{number},{number % 40},{number % 7}" for number in range(rate * seconds)]
        self.count = len(lines)
        self.rows, self.control = TimedSender(lines, rate), Control()
        (folder / "air.py").write_text(JOB)
        words = [
            "--set",
            f"air=tcp:127.0.0.1:{self.rows.port}@a1",
            "--set",
            f"names=tcp:127.0.0.1:{self.control.port}@a2",
        ]
        words += ["--set", f"scored=csv:{self.out}@a3", "--parallelism", "quality=2"]
        done = cli("submit", "air.py:build", *words, *self.agent, cwd=folder)
        assert done.returncode == 0, done.stderr

    @property
    def agent(self) -> tuple[str, str]:
        return "--agent", str(self.ring.agents[0].state_dir)

    def shared(self, data: bytes) -> str:
        """Send a model to all nodes; return its name."""
        (self.folder / "model.onnx").write_bytes(data)
        done = cli("model", "air", "model.onnx", *self.agent, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def counts(self) -> Counter[str]:
        """Counts of the step that scores."""
        status = self.ring.agents[0].ask(Status("air"))
        return Counter(status["summary"].get("steps", {}).get("quality", {}))

    def log(self) -> str:
        """Messages of the application on all nodes."""
        lines: list[Any] = self.ring.agents[0].ask(Logs("air"))["lines"]
        return json.dumps(lines)


def test_a_model_is_swapped_under_ten_thousand_rows_a_second(three: Mesh, tmp_path: Path) -> None:
    job = Scoring(three, tmp_path, RATE, SECONDS)
    first = job.shared(FIRST)
    names = [first, *(job.shared(data) for data in BAD.values()), "sha256:" + "ab" * 32, "sha256:ab"]
    for name in names:
        job.control.send(name)
    wait_for(lambda: job.counts()["rows_in"] == 2 * len(names), 30, "both instances have taken all names")
    assert job.counts()["skipped"] == 2 * (len(names) - 1), "one message for each that is no model here"
    second = job.shared(SECOND)
    with job.rows.accept() as connection:
        sending = threading.Thread(target=job.rows.send, args=(connection, 120.0))
        sending.start()
        wait_for(lambda: job.out.exists() and job.out.stat().st_size, 30, "the first rows are scored")
        job.control.send(second)
        sending.join()
    job.control.close()
    wait_for(lambda: three.agents[0].ask(Status("air"))["state"] == "finished", 60, "it has finished")
    refused = cli("model", "air", "model.onnx", *job.agent, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "air is finished: a model is sent to the nodes of a running application" in refused.stderr
    text = job.log()
    for message in (*BAD, "is not on this node", "no name of a model"):
        assert message in text, text
    rows = [line.split(",") for line in job.out.read_text().splitlines()]
    assert sorted(int(row[0]) for row in rows) == list(range(job.count)), "each row is there, once"
    used = Counter(row[5] for row in rows)
    assert set(used) == {model_version(FIRST), model_version(SECOND)}
    last_first = max(int(row[0]) for row in rows if row[5] == model_version(FIRST))
    first_second = min(int(row[0]) for row in rows if row[5] == model_version(SECOND))
    assert last_first < first_second, "one place in the order of rows, for all instances"
    for number, celsius, humidity, _, score, version in rows:
        a, b = float(celsius), float(humidity)
        assert float(score) == pytest.approx(2 * a + b / 2 + 1 if version == model_version(FIRST) else 3 * b - a), (
            number
        )


def test_a_model_for_no_application_is_refused(three: Mesh, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(FIRST)
    done = cli("model", "rooms", str(tmp_path / "model.onnx"), "--agent", str(three.agents[1].state_dir))
    assert done.returncode == 1
    assert "No application 'rooms'" in done.stderr
