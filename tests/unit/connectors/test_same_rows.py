"""The same readings as CSV, JSON, Parquet, SQL, over TCP or MQTT, as dicts or NamedTuples, by functions or expressions, with one
to four instances: one result.
"""

import json
import random
import socket
import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, col, collect, records, tumbling
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.local_runs.local_run import run_topology
from tests.broker import PROGRAM, Broker
from tests.unit.connectors.reading import Taken

COUNT = 2_000


class Reading(NamedTuple):
    at: int
    room: str
    celsius: float
    number: int


Loose = dict[str, Any]
FORMS = ("csv", "jsonl", "parquet", "sql", "tcp", "mqtt")
PARALLELISMS = (1, 2, 3, 4)
_WITHOUT_DICTS = ("parquet", "tcp")


def readings() -> list[Loose]:
    """As they come, some of the same millisecond."""
    draw = random.Random(5)
    rooms, celsius = [draw.randrange(17) for _ in range(COUNT)], [draw.randrange(-999, 999) / 7 for _ in range(COUNT)]
    return [
        {"at": 1_780_000_000_000 + i // 2 * 137, "room": f"r{rooms[i]}", "celsius": celsius[i], "number": i}
        for i in range(COUNT)
    ]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the readings lie in each form."""
    folder = tmp_path_factory.mktemp("same")
    rows = readings()
    head = ",".join(Reading._fields) + "\n"
    (folder / "r.csv").write_text(head + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with sqlite3.connect(folder / "r.db") as database:
        database.execute("create table readings (at integer, room text, celsius real, number integer primary key)")
        database.executemany("insert into readings values (:at, :room, :celsius, :number)", rows)
    (folder / "plant").write_text(f"sqlite:///{folder}/r.db")
    (folder / "plant").chmod(0o600)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), folder / "r.parquet", row_group_size=300)
    except ImportError:
        pass
    return folder


def over_mqtt(folder: Path, kind: Any) -> list[Any]:
    """All rows as they came from a broker."""
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    with Broker(folder) as broker:
        reader = open_source(parse_connector(f"mqtt://127.0.0.1:{broker.port}/r?qos=1&session=s"), kind)
        client = paho.Client(CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        found = Taken(reader)

        def is_heard(it: Taken) -> bool:
            client.publish("r", json.dumps({"at": 0, "room": "", "celsius": 0.0, "number": -1}), 1)
            return bool(it.rows)

        found.until(is_heard)
        for row in readings():
            client.publish("r", json.dumps(row), 1)
        number: Callable[[Any], int] = (lambda row: row["number"]) if kind is Loose else (lambda row: row.number)
        found.until(lambda it: len([row for row in it.rows if number(row) >= 0]) == COUNT)
        reader.close()
        client.disconnect()
        client.loop_stop()
    return [row for row in found.rows if number(row) >= 0]


def given(form: str, folder: Path, kind: Any) -> Any:
    """The source."""
    if form == "sql":
        return parse_connector("sql:plant?table=readings")
    if form == "mqtt":
        return records(over_mqtt(folder, kind))
    if form == "tcp":
        door = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            with door, door.accept()[0] as peer:
                peer.sendall((folder / "r.csv").read_bytes().partition(b"\n")[2])

        threading.Thread(target=serve, daemon=True).start()
        return parse_connector(f"tcp:127.0.0.1:{door.getsockname()[1]}")
    return parse_connector(f"{form}:{folder}/r.{form}")


def result(source: Any, kind: Any, *, expressions: bool, parallelism: int, seed: int | None) -> list[Any]:
    """Mean and highest of each room in each ten seconds of what is above zero, doubled."""
    topology = Topology("same")
    if kind is Loose:
        stream = topology.source("readings", source, rows=kind, event_time=lambda row: row["at"]).map(
            lambda row: Reading(row["at"], row["room"], row["celsius"], row["number"]), name="typed", returns=Reading
        )
    else:
        stream = topology.source("readings", source, rows=kind, event_time="at")
    if expressions:
        chosen = stream.where(col("celsius") > 0, "warm").with_columns(name="twice", celsius=col("celsius") * 2)
        windows = chosen.key_by(col("room")).window(tumbling(timedelta(seconds=10)))
    else:
        chosen = stream.filter(lambda row: row.celsius > 0, "warm").map(
            lambda row: row._replace(celsius=row.celsius * 2), name="twice", returns=Reading
        )
        windows = chosen.key_by(lambda row: row.room, returns=str).window(tumbling(timedelta(seconds=10)))
    windows.aggregate("rooms", mean=col("celsius").mean(), high=col("celsius").max(), first=col("number").min()).sink(
        "out", collect
    )
    run = run_topology(topology, parallelism=parallelism, schedule_seed=seed)
    assert run.summary.records_in == COUNT
    return sorted(tuple(row) for row in run.collected["out"])


@pytest.fixture(scope="module")
def wanted() -> list[Any]:
    """Worked out on paper."""
    panes: dict[tuple[str, int], list[Loose]] = {}
    for row in readings():
        if row["celsius"] > 0:
            panes.setdefault((row["room"], row["at"] // 10_000 * 10_000), []).append(row)
    return sorted(
        (room, start, max(row["celsius"] * 2 for row in rows), rows[0]["number"])
        for (room, start), rows in panes.items()
    )


def judged(found: list[Any], wanted: list[Any]) -> None:
    """Compare with the result worked out on paper. Means are compared among forms."""
    assert sorted((row[0], row[1], row[-2], row[-1]) for row in found) == wanted


COMBINATIONS = [
    (form, kind, expressions, parallelism)
    for form in FORMS
    for kind in (Reading, Loose)
    if kind is Reading or form not in _WITHOUT_DICTS
    for expressions in (False, True)
    for parallelism in PARALLELISMS
]
DRAWN = random.Random(11).sample([one for one in COMBINATIONS if one[0] != "mqtt"], 8)


def check(
    combination: tuple[str, Any, bool, int], places: Path, monkeypatch: pytest.MonkeyPatch, seed: int | None
) -> list[Any]:
    form, kind, expressions, parallelism = combination
    if form == "parquet" and not (places / "r.parquet").exists():
        pytest.skip("no pyarrow here: pip install 'agiledart[columns]'")
    if form == "sql":
        pytest.importorskip("sqlalchemy", reason="no SQLAlchemy here: pip install 'agiledart[sql]'")
        monkeypatch.setenv("AGILEDART_CREDENTIALS", str(places))
    if form == "mqtt":
        pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")
        if PROGRAM is None:
            pytest.skip("no mosquitto here (Debian: apt install mosquitto)")
    return result(given(form, places, kind), kind, expressions=expressions, parallelism=parallelism, seed=seed)


def test_some_forms_give_the_same_result(places: Path, monkeypatch: pytest.MonkeyPatch, wanted: list[Any]) -> None:
    found = [check(one, places, monkeypatch, seed) for seed, one in enumerate([*DRAWN, ("mqtt", Reading, True, 3)])]
    judged(found[0], wanted)
    for one, combination in zip(found, DRAWN, strict=False):
        assert one == found[0], combination


@pytest.mark.soak
def test_all_forms_give_the_same_result(places: Path, monkeypatch: pytest.MonkeyPatch, wanted: list[Any]) -> None:
    first = check(COMBINATIONS[0], places, monkeypatch, None)
    judged(first, wanted)
    for seed, combination in enumerate(COMBINATIONS):
        for schedule in (None, seed):
            assert check(combination, places, monkeypatch, schedule) == first, (combination, schedule)
