"""SQL on SQLite: rows in, rows out, the same rows again; a database that is locked, wrong or gone; no URL in messages."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

pytest.importorskip("sqlalchemy", reason="no SQLAlchemy here: pip install 'agiledart[sql]'")

import sqlalchemy as sa

from agiledart import Alias, Topology, collect
from agiledart_connectors.opening import open_sink, open_source
from agiledart_connectors.probing import probe_sink, probe_source
from agiledart_connectors.remote import connection_health, delivery_queue
from agiledart_connectors.sql import sql_reader
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from tests.unit.connectors.reading import Taken

NOON = datetime.fromisoformat("2026-01-01T12:00:00")


class Minute(NamedTuple):
    room: str
    start: datetime
    mean: float
    high: int | None


class Reading(NamedTuple):
    number: Annotated[int, Alias("id")]
    celsius: float
    at: datetime


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "plant").write_text(f"sqlite:///{tmp_path}/plant.db\n")
    (folder / "plant").chmod(0o600)
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(folder))
    connection = sqlite3.connect(tmp_path / "plant.db", isolation_level=None)
    yield connection
    connection.close()


def write(url: str, rows: list[Any], kind: Any = Minute) -> Any:
    writer = open_sink(parse_connector(url), kind)
    writer.write(rows)
    writer.close()
    return writer


def read(url: str, kind: Any) -> tuple[list[Any], dict[str, int], list[str]]:
    topology, told = Topology("t"), list[str]()
    topology.source("rows", parse_connector(url), rows=kind).sink("out", collect)
    run = run_topology(topology, on_log=told.append)
    return run.collected["out"], dict(run.summary.malformed), told


def minutes(count: int, mean: float = 1.5) -> list[Minute]:
    return [Minute(f"room-{number}", NOON, mean, None if number % 2 else number) for number in range(count)]


def test_rows_are_inserted_and_a_table_is_created(database: sqlite3.Connection) -> None:
    write("sql:plant?table=minutes&create=1", minutes(2_500))
    assert database.execute("select count(*), sum(high) from minutes").fetchone() == (2_500, sum(range(0, 2_500, 2)))
    write("sql:plant?table=minutes", minutes(1))
    assert database.execute("select count(*) from minutes").fetchone() == (2_501,)


def test_rows_with_a_key_replace_equal_keys(database: sqlite3.Connection) -> None:
    url = "sql:plant?table=minutes&key=room,start&create=1"
    write(url, minutes(50))
    write(url, minutes(60, mean=2.5))  # as after a crash, with more
    assert database.execute("select count(*), min(mean) from minutes").fetchone() == (60, 2.5)


def test_a_refusal_of_the_database_fails_the_application_with_its_message(database: sqlite3.Connection) -> None:
    database.execute("create table minutes (room text unique, start text, mean real, high integer)")
    with pytest.raises(OperationFailed, match="refuses a row: UNIQUE constraint failed"):
        write("sql:plant?table=minutes&rejected=fail", [*minutes(2), *minutes(1)])
    assert database.execute("select count(*) from minutes").fetchone()[0] <= 2


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sql:plant", "write sql:NAME\\?table=TABLE"),
        ("sql:?table=minutes", "write sql:NAME"),
        ("sql:nobody?table=minutes", "there is no credential 'nobody'"),
        ("sql:broken?table=minutes", "holds no URL of SQLAlchemy"),
        ("sql:driverless?table=minutes", "needs a driver that is not installed"),
        ("sql:plant?table=nothing", "has no table nothing"),
        ("sql:plant?table=minutes&key=rom", "has no column rom; there are room, start"),
        ("sql:plant?table=minutes&kee=room", "sql has no option 'kee'"),
    ],
)
def test_errors_are_reported_without_the_url(url: str, why: str, database: sqlite3.Connection, tmp_path: Path) -> None:
    for name, text in (("broken", "hello secret-word"), ("driverless", "postgresql+nodriver://u:secret-word@h/d")):
        (tmp_path / "credentials" / name).write_text(text)
        (tmp_path / "credentials" / name).chmod(0o600)
    write("sql:plant?table=minutes&create=1", [])
    with pytest.raises((ConfigurationError, OperationFailed), match=why) as error:
        open_sink(parse_connector(url), Minute)
    assert "secret-word" not in str(error.value)


def test_rows_wait_while_the_database_is_locked(
    database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_health, "MIN_BACKOFF_SECONDS", 0.05)
    (tmp_path / "credentials" / "plant").write_text(f"sqlite:///{tmp_path}/plant.db?timeout=0.05")
    write("sql:plant?table=minutes&create=1", [])
    writer: Any = open_sink(parse_connector("sql:plant?table=minutes"), Minute)
    database.execute("begin exclusive")
    writer.write(minutes(10))
    deadline = time.monotonic() + 30
    notices: list[str] = []
    while not notices and time.monotonic() < deadline:
        notices += writer.take_notices()
        threading.Event().wait(0.01)
    assert "the database of 'plant' does not take rows (database is locked)" in notices[0]
    database.execute("commit")
    writer.close()
    assert database.execute("select count(*) from minutes").fetchone() == (10,)


def test_the_end_reports_the_number_of_refused_rows(
    database: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_queue, "END_SECONDS", 0.3)
    (tmp_path / "credentials" / "plant").write_text(f"sqlite:///{tmp_path}/plant.db?timeout=0.05")
    write("sql:plant?table=minutes&create=1", [])
    writer: Any = open_sink(parse_connector("sql:plant?table=minutes"), Minute)
    database.execute("begin exclusive")
    writer.write(minutes(10))
    with pytest.raises(OperationFailed, match=r"10 rows were not taken by the database of 'plant' before the end"):
        writer.close()


def test_a_table_is_read_in_key_order_and_invalid_rows_are_reported(database: sqlite3.Connection) -> None:
    database.execute("create table readings (celsius real, id integer primary key, at timestamp, more text)")
    database.execute("begin")
    database.executemany(
        "insert into readings values (?, ?, ?, 'x')",
        [(number / 2, number, "2026-01-01 12:00:00.000000") for number in range(3_000, 0, -1)],
    )
    database.execute("insert into readings values (null, 7777, '2026-01-01 12:00:00', 'x')")
    database.execute("commit")
    rows, malformed, told = read("sql:plant?table=readings", Reading)
    assert rows == [Reading(number, number / 2, NOON) for number in range(1, 3_001)]
    assert malformed == {"type": 1}
    assert "rows: plant.readings id=7777: celsius is NULL" in told


def test_dict_rows_hold_json_values(database: sqlite3.Connection) -> None:
    database.execute("create table readings (id integer primary key, at timestamp, price numeric(10, 2))")
    database.execute("insert into readings values (1, '2026-01-01 12:00:00.000000', 1.25)")
    rows, _, _ = read("sql:plant?table=readings&cursor=id", dict[str, Any])
    assert rows == [{"id": 1, "at": "2026-01-01T12:00:00", "price": 1.25}]
    assert not isinstance(rows[0]["price"], Decimal)


def test_added_rows_are_read_when_polling(database: sqlite3.Connection) -> None:
    database.execute("create table readings (id integer primary key, celsius real, at timestamp)")
    add = "insert into readings values (?, 1.5, '2026-01-01 12:00:00.000000')"
    database.execute(add, [1])
    reader: Any = open_source(parse_connector("sql:plant?table=readings&poll=1s"), Reading)
    rows: list[Any] = []
    deadline = time.monotonic() + 60
    for number in (2, 3):
        while len(rows) < number - 1:
            reading = reader.read(10, 0)
            assert not reading.exhausted
            rows += reading.rows
            assert time.monotonic() < deadline
        database.execute(add, [number])
    reader.close()
    assert [row.number for row in rows] == [1, 2]


def test_a_dry_run_reports_whether_the_table_exists(database: sqlite3.Connection, tmp_path: Path) -> None:
    making = parse_connector("sql:plant?table=minutes&create=1")
    assert probe_sink(making, Minute, {}).text == "table will be made"
    assert database.execute("select name from sqlite_master").fetchall() == [], "nothing is made"
    write("sql:plant?table=minutes&create=1", [])
    assert probe_sink(making, Minute, {}).text == "table exists"
    assert "idempotent" in probe_sink(making, Minute, {}).guarantee
    told = probe_source(parse_connector("sql:plant?table=minutes&cursor=room"), Minute).text
    assert told.startswith("table exists; its cursor room is not unique")
    database.execute("create unique index rooms on minutes (room, start)")
    assert probe_source(parse_connector("sql:plant?table=minutes&cursor=start,room"), Minute).text == "table exists"
    with pytest.raises(ConfigurationError, match="say by which growing column"):
        probe_source(parse_connector("sql:plant?table=minutes"), Minute)
    with pytest.raises(OperationFailed, match="has no table nothing"):
        probe_sink(parse_connector("sql:plant?table=nothing"), Minute, {})


class Timed(NamedTuple):
    at: datetime
    name: str


def polled(url: str, kind: Any) -> Taken:
    return Taken(open_source(parse_connector(url), kind))


def test_rows_added_with_the_last_value_of_the_cursor_are_read_once(database: sqlite3.Connection) -> None:
    database.execute("create table readings (at timestamp, name text)")
    add = "insert into readings values ('2026-01-01 12:00:00', ?)"
    database.executemany(add, [["a"], ["a"], ["b"]])
    taken = polled("sql:plant?table=readings&cursor=at&poll=1s", Timed)
    taken.until(lambda it: len(it.rows) == 3)
    database.executemany(add, [["c"], ["a"]])
    taken.until(lambda it: len(it.rows) == 5)
    database.execute("insert into readings values ('2026-01-01 12:00:01', 'd')")
    taken.until(lambda it: len(it.rows) == 6)
    taken.reader.close()
    assert sorted(row.name for row in taken.rows) == ["a", "a", "a", "b", "c", "d"]
    assert "the cursor at is not unique" in taken.notes[0]


def test_a_cursor_of_two_columns_orders_rows(database: sqlite3.Connection) -> None:
    database.execute("create table readings (at timestamp, name text, unique (name, at))")
    add = "insert into readings values (?, ?)"
    database.executemany(
        add, [["2026-01-01 12:00:01", "a"], ["2026-01-01 12:00:00", "z"], ["2026-01-01 12:00:00", "b"]]
    )
    taken = polled("sql:plant?table=readings&cursor=at,name&poll=1s", Timed)
    taken.until(lambda it: len(it.rows) == 3)
    database.executemany(add, [["2026-01-01 12:00:01", "c"], ["2026-01-01 12:00:02", "a"]])
    taken.until(lambda it: len(it.rows) == 5)
    taken.reader.close()
    assert [row.name for row in taken.rows] == ["b", "z", "a", "c", "a"]
    assert taken.notes == []


def test_rows_without_a_cursor_are_noted(database: sqlite3.Connection) -> None:
    database.execute("create table readings (at timestamp unique, name text)")
    database.execute("insert into readings values (null, 'x'), ('2026-01-01', 'a')")
    rows, _, told = read("sql:plant?table=readings&cursor=at", Timed)
    assert [row.name for row in rows] == ["a"]
    assert any("rows whose at is NULL are not read" in text for text in told)


def test_times_of_a_column_become_utc_and_others_are_malformed(database: sqlite3.Connection) -> None:
    database.execute("create table readings (id integer primary key, at timestamp, name text)")
    forms = ["2026-01-01T12:00:00Z", "2026-01-01 13:00:00+01:00", 1767268800, 1767268800000, "n/a", None, b"x", 1e300]
    forms += ["0001-01-01T00:00:00+01:00"]
    database.executemany("insert into readings (at, name) values (?, 'a')", [[form] for form in forms])
    rows, malformed, told = read("sql:plant?table=readings", Timed)
    assert rows == [Timed(NOON, "a")] * 4
    assert malformed == {"time": 4, "type": 1}
    assert "rows: plant.readings id=5: at: 'n/a' is no time" in told
    rows, malformed, _ = read("sql:plant?table=readings", dict[str, Any])
    assert [row["at"] for row in rows] == ["2026-01-01T12:00:00"] * 4 + [None]
    assert malformed == {"time": 4}


def test_a_value_that_the_driver_cannot_read_costs_its_row_alone(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Picky(sa.types.TypeDecorator[float]):
        impl, cache_ok = sa.Float, True

        def process_result_value(self, value: Any, dialect: Any) -> float:
            if value < 0:
                raise LookupError(f"{value} is below zero")
            return float(value)

    database.execute("create table readings (id integer primary key, celsius real, at timestamp)")
    add = "insert into readings values (?, ?, '2026-01-01 12:00:00')"
    bad = {3, 999, 1_000, 1_001, 2_500}
    database.execute("begin")
    database.executemany(add, [(number, -1 if number in bad else number) for number in range(1, 2_501)])
    database.execute("commit")

    def reflected(engine: sa.Engine, connector: Any) -> sa.Table:
        columns = (sa.Column("id", sa.Integer, primary_key=True), sa.Column("celsius", Picky))
        return sa.Table("readings", sa.MetaData(), *columns, sa.Column("at", sa.DateTime))

    monkeypatch.setattr(sql_reader, "reflected", reflected)
    rows, malformed, told = read("sql:plant?table=readings&cursor=id", Reading)
    assert [row.number for row in rows] == [number for number in range(1, 2_501) if number not in bad]
    assert malformed == {"type": 5}
    assert "plant.readings id=3: celsius: '-1.0' cannot be read (LookupError: -1.0 is below zero)" in told[0]
