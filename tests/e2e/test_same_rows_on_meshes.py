"""The same readings as CSV, JSON, Parquet, SQL or MQTT, as NamedTuples or dicts, by rows or columns: on one agent and on five, with
one to four instances, the result is what one process makes of a CSV file.
"""

import json
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Status
from tests.broker import PROGRAM, Broker
from tests.e2e.mesh import Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = """
from datetime import timedelta
from typing import Any, NamedTuple

from agiledart import Sink, Source, Topology, col, tumbling


class Reading(NamedTuple):
    at: int
    room: str
    celsius: float
    number: int


def typed(row: dict[str, Any]) -> Reading:
    return Reading(row["at"], row["room"], row["celsius"], row["number"])


def end(stream: Any, report: Sink[Any]) -> None:
    windows = stream.key_by(col("room")).window(tumbling(timedelta(seconds=10)))
    panes = windows.aggregate("rooms", mean=col("celsius").mean(), high=col("celsius").max(), first=col("number").min())
    panes.sink("report", report)


def columns(readings: Source[Reading], report: Sink[Any], name: str = "same") -> Topology:
    topology = Topology(name)
    stream = topology.source("readings", readings, event_time="at").where(col("celsius") > 0, "warm")
    end(stream.with_columns(name="twice", celsius=col("celsius") * 2), report)
    return topology


def rows(readings: Source[Reading], report: Sink[Any], name: str = "same") -> Topology:
    topology = Topology(name)
    stream = topology.source("readings", readings, event_time="at").filter(lambda row: row.celsius > 0, "warm")
    end(stream.map(lambda row: row._replace(celsius=row.celsius * 2), name="twice", returns=Reading), report)
    return topology


def dicts(readings: Source[dict[str, Any]], report: Sink[Any], name: str = "same") -> Topology:
    topology = Topology(name)
    stream = topology.source("readings", readings, event_time=lambda row: row["at"]).map(typed, name="typed")
    end(stream.filter(lambda row: row.celsius > 0, "warm").map(
        lambda row: row._replace(celsius=row.celsius * 2), name="twice", returns=Reading), report)
    return topology
"""
COUNT = 2_000
FORMS = ("csv", "jsonl", "parquet", "sql", "mqtt")
ALL = [
    (form, entry, instances)
    for form in FORMS
    for entry in ("columns", "rows", "dicts")
    for instances in (1, 4)
    if (form, entry) != ("parquet", "dicts")
]


def readings() -> list[dict[str, Any]]:
    """As they come."""
    draw = random.Random(6)
    return [
        {"at": 1_780_000_000_000 + i * 70, "room": f"r{draw.randrange(17)}", "celsius": draw.randrange(-999, 999) / 7, "number": i}
        for i in range(COUNT)
    ]  # fmt: skip


class World:
    """The readings in each form, and where they are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "same.py").write_text(CODE)
        rows = readings()
        head = ",".join(rows[0]) + "\n"
        (folder / "r.csv").write_text(head + "".join(",".join(map(str, row.values())) + "\n" for row in rows))
        (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "db").mkdir()
        with sqlite3.connect(folder / "db" / "r.db") as database:
            database.execute("create table readings (at integer, room text, celsius real, number integer primary key)")
            database.executemany("insert into readings values (:at, :room, :celsius, :number)", rows)
        (folder / "plant").write_text(f"sqlite:///{folder}/db/r.db")
        (folder / "plant").chmod(0o600)
        told = self.cli(
            "run", "same.py:rows", "--set", f"readings=csv:{folder}/r.csv", "--set", "report=csv:wanted.csv"
        )
        assert told.returncode == 0, told.stderr
        self.wanted = sorted((folder / "wanted.csv").read_text().splitlines())
        assert len(self.wanted) > 100

    def cli(self, *words: str) -> Any:
        return cli(*words, cwd=self.folder)

    def source(self, form: str, broker: Broker | None) -> str:
        if form == "sql":
            pytest.importorskip("sqlalchemy", reason="no SQLAlchemy here: pip install 'agiledart[sql]'")
            return "sql:plant?table=readings"
        if form == "mqtt":
            pytest.importorskip("paho.mqtt.client", reason="no paho-mqtt here: pip install 'agiledart[mqtt]'")
            assert broker is not None
            return f"mqtt://127.0.0.1:{broker.port}/r?qos=1"
        if form == "parquet" and not (self.folder / "r.parquet").exists():
            pa = pytest.importorskip("pyarrow", reason="no pyarrow here: pip install 'agiledart[columns]'")
            from pyarrow import parquet

            parquet.write_table(pa.Table.from_pylist(readings()), self.folder / "r.parquet")
        return f"{form}:{self.folder}/r.{form}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        made = World(tmp_path_factory.mktemp("same"))
        patch.setenv("AGILEDART_CREDENTIALS", str(made.folder))
        yield made


def read(made: Mesh, name: str) -> int:
    """Rows that its source has read."""
    told = made.agents[0].ask(Status(name))
    instances = next(stage for stage in told["stages"] if stage["name"] == "readings")["instances"]
    return sum(one.get("steps", {}).get("readings", {}).get("rows_in", 0) for one in instances)


def check(made: Mesh, world: World, form: str, entry: str, instances: int, broker: Broker | None = None) -> None:
    """Run one and compare."""
    name, out = f"{form}-{entry}-{instances}", world.folder / f"{form}-{entry}-{instances}-{len(made.agents)}.csv"
    here, there = made.agents[len(made.agents) // 2].name, made.agents[-1].name
    state_dir = str(made.agents[0].state_dir)
    words = [
        "submit", f"same.py:{entry}", "--set", f"readings={world.source(form, broker)}@{here}", "--set", f"name={name}",
        "--set", f"report=csv:{out}@{there}", "--parallelism", f"rooms={instances}", "--agent", state_dir,
    ]  # fmt: skip
    told = world.cli(*words, *([] if broker is not None else ["--wait"]))
    assert told.returncode == 0, told.stdout + told.stderr
    if broker is not None:
        import paho.mqtt.client as paho

        def is_connected() -> bool:
            return "connection_status" not in made.agents[0].ask(Status(name))["stages"][0]["instances"][0]

        wait_for(is_connected, 30, "the source is connected")
        client: Any = paho.Client(paho.CallbackAPIVersion.VERSION2)  # type: ignore[attr-defined]
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        for row in readings():
            client.publish("r", json.dumps(row), 1)
        wait_for(lambda: read(made, name) == COUNT, 60, "all messages are read")
        client.disconnect()
        client.loop_stop()
        assert world.cli("stop", name, "--agent", state_dir).returncode == 0
    assert sorted(out.read_text().splitlines()) == world.wanted, (form, entry, instances)


@pytest.mark.soak
def test_some_forms_on_five_agents(world: World) -> None:
    with mesh(5) as made:
        for form, entry, instances in (("jsonl", "dicts", 3), ("parquet", "columns", 4), ("csv", "columns", 2)):
            check(made, world, form, entry, instances)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("agents", [1, 5])
def test_all_forms(world: World, tmp_path: Path, agents: int) -> None:
    if PROGRAM is None or shutil.which(PROGRAM) is None:
        pytest.skip("no mosquitto here (Debian: apt install mosquitto)")
    with mesh(agents) as made, Broker(tmp_path) as broker:
        for form, entry, instances in ALL:
            check(made, world, form, entry, instances, broker if form == "mqtt" else None)
