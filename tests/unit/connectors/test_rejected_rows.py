"""Rows that a sink cannot take: the others arrive, each such row is counted and reported with its field, under each policy."""

import json
import sqlite3
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest

from agiledart import Topology
from agiledart_connectors.opening import open_sink
from agiledart_connectors.probing import probe_sink
from agiledart_connectors.rejections import RowsRefusedError
from agiledart_connectors.remote.delivery_queue import DeliveryQueueWriter
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.local_runs.local_run import LocalRun, run_topology
from agiledart_kernel.errors import ConfigurationError, OperationFailed

TOO_LARGE = (1 << 63) + 5


class Counter(NamedTuple):
    id: int
    n: int
    v: float = 0.5


ROWS = [Counter(1, 5), Counter(2, TOO_LARGE), *(Counter(number, 7) for number in range(3, 40))]
TEXT = f"out: a row is rejected: n: {TOO_LARGE} does not fit 64 bits: Counter(id=2, n={TOO_LARGE}, v=0.5)"


def run(url: str, rows: list[Any] = ROWS) -> tuple[LocalRun, list[str]]:
    topology, told = Topology("t"), list[str]()
    topology.source(
        "rows", parse_connector("list:").__class__("list", row_type=Counter, payload=rows), rows=Counter
    ).sink("out", parse_connector(url))
    return run_topology(topology, on_log=told.append), told


def assert_counted(done: LocalRun, told: list[str]) -> None:
    counts = done.summary.steps["out"]
    assert (counts.rows_in, counts.rows_out, counts.rejected) == (len(ROWS), len(ROWS) - 1, 1)
    assert done.summary.results == {"out": len(ROWS) - 1}
    assert TEXT in told


def test_a_number_beyond_64_bits_costs_its_row_alone_in_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    done, told = run(f"parquet:{tmp_path}/out.parquet")
    assert_counted(done, told)
    assert parquet.read_table(tmp_path / "out.parquet")["id"].to_pylist() == [1, *range(3, 40)]


def test_the_same_in_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy")
    (tmp_path / "plant").write_text(f"sqlite:///{tmp_path}/plant.db")
    (tmp_path / "plant").chmod(0o600)
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(tmp_path))
    done, told = run("sql:plant?table=counters&create=1")
    assert_counted(done, told)
    with sqlite3.connect(tmp_path / "plant.db") as database:
        assert database.execute("select id from counters").fetchall() == [(1,), *((n,) for n in range(3, 40))]
        database.execute("create table few (id integer primary key, n integer check (n < 7), v real)")
    done, told = run("sql:plant?table=few")
    assert done.summary.results == {"out": 1}
    assert sum("CHECK constraint failed" in text for text in told) == 4
    assert done.summary.steps["out"].rejected == len(ROWS) - 1


def test_the_same_in_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from agiledart_connectors.sink_origin import SinkOrigin

    writer: Any = open_sink(parse_connector("log:counters"), Counter, origin=SinkOrigin(root=tmp_path))
    writer.write(ROWS)
    writer.flush()
    assert writer.take_rejected() == 1
    assert [f"out: {text}" for text in writer.take_notices()] == [TEXT]
    assert sum(partition.end for partition in writer._log.partitions) == len(ROWS) - 1
    writer.close()


def test_dead_letters_go_to_a_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    done, _ = run(f"parquet:{tmp_path}/out.parquet?rejected=dead_letter&dead_letters={tmp_path}/letters.jsonl")
    assert done.summary.results == {"out": len(ROWS) - 1}
    (letter,) = map(json.loads, (tmp_path / "letters.jsonl").read_text().splitlines())
    assert letter == {"record": repr(ROWS[1]), "error": f"n: {TOO_LARGE} does not fit 64 bits"}


def test_the_first_one_ends_the_application_under_the_policy_fail(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(OperationFailed, match="out: a row is rejected, and rejected=fail allows none: n: 92233"):
        run(f"parquet:{tmp_path}/out.parquet?rejected=fail")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("rejected=no", "rejected is one of count, fail, dead_letter, not 'no'"),
        ("rejected=dead_letter", "go together"),
        ("dead_letters=x", "go together"),
    ],
)
def test_invalid_policies_are_rejected(options: str, why: str, tmp_path: Path) -> None:
    connector = parse_connector(f"jsonl:{tmp_path}/x?{options}")
    with pytest.raises(ConfigurationError, match=why):
        open_sink(connector, Counter)
    with pytest.raises(ConfigurationError, match=why):
        probe_sink(connector, Counter, {})


class Picky(BaseHTTPRequestHandler):
    """A server that takes no body in which a row has an odd number."""

    taken: list[int] = []
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        bad = [row["id"] for row in rows if row["id"] % 2]
        if not bad:
            self.taken += [row["id"] for row in rows]
        self.send_response(422 if bad else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        return None


def test_a_server_refuses_rows_and_gets_the_others() -> None:
    Picky.taken = []
    with HTTPServer(("127.0.0.1", 0), Picky) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            done, told = run(f"http://127.0.0.1:{server.server_port}/hook?batch=16")
        finally:
            server.shutdown()
            thread.join()
    assert Picky.taken == list(range(2, 40, 2))
    assert done.summary.steps["out"].rejected == 20
    assert "refuses a row (422 Unprocessable Entity)" in told[0]


class Halves(DeliveryQueueWriter):
    """A receiver that refuses batches with a row below zero."""

    def __init__(self) -> None:
        from agiledart_connectors.latency_recorder import LatencyRecorder

        self.taken: list[int] = []
        super().__init__("halves", LatencyRecorder(int, lambda: 0), lambda row, now: 1_000 // row, max_batch_rows=64)

    def deliver(self, batch: list[Any]) -> None:
        if min(batch) < 0:
            raise RowsRefusedError("below zero")
        self.taken += batch


@pytest.mark.parametrize("bad", [lambda number: False, lambda number: number % 7 == 0, lambda number: True])
def test_each_row_is_delivered_or_rejected_once_in_order(bad: Callable[[int], bool]) -> None:
    writer = Halves()
    rows = [-number if bad(number) else number for number in range(1, 301)]
    writer.write([*rows, 0])  # it cannot be rendered
    writer.close()
    assert writer.taken == [1_000 // row for row in rows if row > 0]
    assert writer.take_rejected() == sum(row < 0 for row in rows) + 1
    assert len(writer.take_notices()) == min(5, sum(row < 0 for row in rows) + 1)
