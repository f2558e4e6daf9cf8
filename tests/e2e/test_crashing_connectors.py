"""Users' data while brokers, servers and executors are killed at random moments: nothing is lost, and what comes twice is counted.

mosquitto is ended with SIGTERM: killed with SIGKILL it forgets what it has acknowledged and not yet written to its store.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.broker import Broker, needs_broker
from tests.e2e.mesh import Mesh, cli, executors_of, mesh, wait_for
from tests.ports import lasting_port

pytest.importorskip("sqlalchemy", reason="no SQLAlchemy here: pip install 'agiledart[sql]'")

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = """
from typing import Any, NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    number: int
    celsius: float


def doubled(reading: Reading) -> Reading:
    return Reading(reading.number, reading.celsius * 2)


def numbers(readings: Source[Reading], report: Sink[Any], name: str = "numbers") -> Topology:
    topology = Topology(name, delivery="exactly-once")
    topology.source("readings", readings).map(doubled, name="doubled").sink("report", report)
    return topology
"""
PATIENCE = 180.0
SIZES = pytest.mark.parametrize(
    ("count", "kills"), [(3_000, 1), pytest.param(100_000, 8, marks=[pytest.mark.soak, pytest.mark.timeout(1_800)])]
)


class Table:
    """Where rows end."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def counts(self) -> tuple[int, int]:
        """Rows, and different ones."""
        with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(self._connect()) as connection:
            rows, different = connection.execute("select count(*), count(distinct number) from numbers").fetchone()
            return int(rows), int(different)
        return 0, 0

    def wrong(self) -> int:
        """Rows that are not what one undisturbed run writes."""
        with contextlib.closing(self._connect()) as connection:
            return int(connection.execute("select count(*) from numbers where celsius != number").fetchone()[0])


class Running:
    """The application and the kill schedule."""

    def __init__(self, made: Mesh, folder: Path, source: str, sink: str, kills: list[Callable[[], None]]) -> None:
        self.made, self.kills, self.killed = made, kills, 0
        self.state_dir = str(made.agents[0].state_dir)
        (folder / "plant.py").write_text(CODE)
        told = cli(
            "submit", "plant.py:numbers", "--set", f"readings={source}@a2", "--set", f"report={sink}@a3",
            "--agent", self.state_dir, cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr

    def kill_an_executor(self) -> None:
        """Any of any agent."""
        running = [pid for agent in self.made.agents for pid in executors_of(agent)]
        if running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(running), signal.SIGKILL)

    def at_random_moments(self, count: int, kills: int, seed: int) -> Iterator[int]:
        """The numbers below `count`; before some of them something is killed, executors and what else can be in turn."""
        moments = sorted(random.Random(seed).sample(range(count // 20, count), 2 * kills))
        for number in range(count):
            while moments and moments[0] == number:
                moments.pop(0)
                ways = [self.kill_an_executor, *self.kills]
                ways[self.killed % len(ways)]()
                self.killed += 1
            yield number

    def status(self) -> str:
        """As users see it."""
        return cli("status", "numbers", "--agent", self.state_dir).stdout

    def until_all_are_there(self, table: Table, count: int) -> int:
        """Wait for the last row; how many came twice."""
        try:
            wait_for(lambda: table.counts()[1] == count, PATIENCE, "all rows in the table")
        except AssertionError:
            raise AssertionError(f"{table.counts()} of {count:,}\n{self.status()}") from None
        told = json.loads(cli("status", "numbers", "--agent", self.state_dir, "-o", "json").stdout)
        assert told["state"] in ("running", "recovering"), told
        assert any("restarted, attempt" in entry["text"] for entry in told["history"]), "nothing was killed in time"
        assert table.wrong() == 0
        cli("stop", "numbers", "--agent", self.state_dir)
        rows, different = table.counts()
        assert different == count
        return rows - different


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Mesh]:
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_CREDENTIALS", str(credentials))
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "2")
        with mesh(3) as made:
            yield made


def credential(folder: Path, url: str) -> None:
    path = folder / "credentials" / "plant"
    path.write_text(url)
    path.chmod(0o600)


def sqlite(folder: Path) -> Table:
    (folder / "db").mkdir()
    credential(folder, f"sqlite:///{folder}/db/plant.db")
    return Table(lambda: sqlite3.connect(folder / "db" / "plant.db", timeout=20))


@needs_broker
@SIZES
def test_messages_of_a_broker_survive_a_crash(ring: Mesh, tmp_path: Path, count: int, kills: int) -> None:
    paho = pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")
    table = sqlite(tmp_path)
    with Broker(tmp_path) as broker:

        def begin_again() -> None:
            broker.stop()
            broker.start()

        source = f"mqtt://127.0.0.1:{broker.port}/numbers/#?qos=1&session=numbers"
        running = Running(ring, tmp_path, source, "sql:plant?table=numbers&create=1&duplicates=1", [begin_again])
        client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="publisher", clean_session=False)
        client.connect("127.0.0.1", broker.port)
        client.reconnect_delay_set(1, 1)
        client.loop_start()
        taken: set[int] = set()
        client.on_publish = lambda _client, _data, mid, *_: taken.add(mid)
        status = lambda: json.loads(cli("status", "numbers", "--agent", running.state_dir, "-o", "json").stdout)  # noqa: E731
        wait_for(
            lambda: "connection_status" not in status()["stages"][0]["instances"][0], 30, "the source is connected"
        )
        given: set[int] = set()
        for number in running.at_random_moments(count, kills, seed=18):
            payload = json.dumps({"number": number, "celsius": number / 2})
            given.add(client.publish(f"numbers/{number % 7}", payload, 1).mid)  # kept by the client until it is taken
            if len(given) == 500:
                wait_for(lambda: given <= taken, 120, "the broker takes messages")
                given.clear()
                taken.clear()
        twice = running.until_all_are_there(table, count)
        client.loop_stop()
    print(f"{count:,} messages, {running.killed} kills, 0 lost, {twice:,} rows twice")


@pytest.mark.soak
@SIZES
def test_posted_rows_survive_a_crash(ring: Mesh, tmp_path: Path, count: int, kills: int) -> None:
    postgres = pytest.importorskip("tests.unit.connectors.test_postgres")
    if not postgres._FOLDERS:
        pytest.skip("no PostgreSQL here (Debian: apt install postgresql)")
    server = postgres.Server()

    def begin_again() -> None:
        server.kill()
        server.start()

    try:
        server.start()
        credential(tmp_path, server.url)
        with server.connect() as connection:
            connection.execute("create table numbers (number bigint primary key, celsius double precision)")
        port = lasting_port()
        source, sink = f"http://127.0.0.1:{port}/in?listen=1", "sql:plant?table=numbers&key=number"
        running = Running(ring, tmp_path, source, sink, [begin_again])
        rows: list[dict[str, Any]] = []
        for number in running.at_random_moments(count, kills, seed=19):
            rows.append({"number": number, "celsius": number / 2})
            if len(rows) == 100 or number == count - 1:
                assert posted_until_taken(port, json.dumps(rows)), running.status()
                rows.clear()
        assert running.until_all_are_there(Table(server.connect), count) == 0, "a row takes the place of its like"
    finally:
        server.close()
    print(f"{count:,} rows, {running.killed} kills, 0 lost")


def posted_until_taken(port: int, body: str) -> bool:
    """A client that sends again until it reads 202; False when that takes too long."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=35)
        try:
            connection.request("POST", "/in", body)
            if connection.getresponse().status == 202:
                return True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.05)
    return False


class NamedRows:
    """A server that keeps rows by their names and, having got so many, has something killed before it answers."""

    def __init__(self, moments: list[int], kill: Callable[[], None]) -> None:
        self.rows: dict[str, Any] = {}
        self.twice, self.wrong = 0, 0
        named = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                prefix, *names = self.headers["AgileDart-Row-Ids"].split(" ")
                for name, row in zip(names, body, strict=True):
                    named.keep(prefix + name, row)
                if moments and len(named.rows) >= moments[0]:
                    moments.pop(0)
                    kill()
                    self.close_connection = True
                    return
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def keep(self, name: str, row: Any) -> None:
        before = self.rows.setdefault(name, row)
        self.twice += before is not row
        self.wrong += before != row

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_duplicate_webhook_row_has_one_id(ring: Mesh, tmp_path: Path) -> None:
    count = 3_000
    rows = [{"number": number, "celsius": number / 2} for number in range(count)]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    def kill() -> None:
        for pid in executors_of(ring.agent("a3")):
            os.kill(pid, signal.SIGKILL)

    hook = NamedRows([700, 1_900], kill)
    try:
        sink = f"http://127.0.0.1:{hook.port}/in?batch=50&duplicates=1"
        running = Running(ring, tmp_path, f"jsonl:{tmp_path}/in.jsonl", sink, [])
        told = lambda: json.loads(cli("status", "numbers", "--agent", running.state_dir, "-o", "json").stdout)  # noqa: E731
        wait_for(lambda: told()["state"] == "finished", PATIENCE, "it has ended")
    finally:
        hook.close()
    assert sorted(row["number"] for row in hook.rows.values()) == list(range(count)), "none lost; one name for each"
    assert hook.wrong == 0, "no two rows have one name"
    assert hook.twice > 0, "nothing came twice: the kills proved nothing"
