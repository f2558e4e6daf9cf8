"""Sampled latencies through real processes: the chosen records and no others, found through any agent, readable whatever becomes of
the application and of its node.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_dataflow.counts.sampling import is_sampled
from agiledart_node.wire.commands import CreateToken, Status
from agiledart_sink_log.client import SinkLogClient, SinkLogError
from agiledart_sink_log.protocol import UNKNOWN_SINK
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e]

CODE = """
from typing import NamedTuple

from agiledart import ReadTime, Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    value: int
    read_at: ReadTime


class Number(NamedTuple):
    value: int


def twice(readings: Source[Reading], out: Sink[Reading], other: Sink[Reading], bare: Sink[Number]) -> Topology:
    topology = Topology("twice")
    read = topology.source("readings", readings, event_time=lambda reading: reading.at)
    read.sink("out", out)
    read.filter(lambda reading: reading.value % 2 == 0, name="even").sink("other", other)
    read.map(lambda reading: Number(reading.value), name="number").sink("bare", bare)
    return topology
"""
FIELDS = ("application", "version", "sink", "source", "sequence", "observed_at", "latency_ms")


@pytest.fixture(scope="module")
def two() -> Iterator[Mesh]:
    with mesh(2) as made:
        yield made


def client(agent: AgentProcess, founder: AgentProcess, scope: str = "") -> SinkLogClient:
    token = str(founder.ask(CreateToken(role="reader", scope=scope))["token"])
    return SinkLogClient([agent.address], identity_from_token(token)[0], agent_timeout_s=20.0)


def submit(agent: AgentProcess, folder: Path, name: str, count: int, speed: float, first: str, second: str) -> None:
    (folder / "twice.py").write_text(CODE)
    (folder / "readings.csv").write_text("".join(f"{n},{n}\n" for n in range(count)))
    source = f"csv:{folder}/readings.csv?speed={speed:g}"
    ran = cli(
        *("submit", f"{folder}/twice.py:twice", "--name", name, "--set", f"readings={source}@a1"),
        *("--set", f"out=null:@{first}", "--set", f"other=null:@{second}", "--set", "bare=null:@a1"),
        *("--agent", str(agent.state_dir), "--delivery", "at-most-once"),
    )
    assert ran.returncode == 0, ran.stderr
    assert "Watch: agiledart top" in ran.stdout


def samples(reader: SinkLogClient, sink: str, end: int | None = None) -> list[dict[str, Any]]:
    if end is None:
        end = reader.ends(sink).partitions[0].committed
    rows: list[Any] = []
    while len(rows) < end:
        for batch in reader.fetch(sink, 0, len(rows)).batches:
            rows += msgspec.msgpack.decode(batch.body)
    return [dict(zip(FIELDS, row, strict=True)) for row in rows[:end]]


def state_of(agent: AgentProcess, name: str) -> str:
    return str(agent.ask(Status(name))["state"])


def test_exactly_the_sampled_records_of_each_sink_are_read_through_any_agent(two: Mesh, tmp_path: Path) -> None:
    a1, a2 = two.agents
    count = 2_000
    began_ns = time.time_ns()
    submit(a2, tmp_path, "both", count, 1, "a1", "a2")  # a row each millisecond
    wait_for(lambda: state_of(a2, "both") == "finished", 60, "the application has finished")
    ended_ns = time.time_ns()
    told = a2.ask(Status("both"))
    assert told["latency_logs"] == {"out": "_latency.both", "other": "_latency2.both"}
    chosen = [n for n in range(count) if is_sampled(0, n)]
    for sink, log, expected in (
        ("out", "_latency.both", chosen),
        ("other", "_latency2.both", [n for n in chosen if n % 2 == 0]),
    ):
        with client(a1, a1, f"sink:{log}") as through_one, client(a2, a1, f"sink:{log}") as through_other:
            rows = samples(through_one, log)
            assert rows == samples(through_other, log)
        assert [row["sequence"] for row in rows] == expected
        assert {(row["application"], row["version"], row["sink"], row["source"]) for row in rows} == {
            ("both", 1, sink, "readings")
        }
        assert all(row["latency_ms"] > 0 and row["observed_at"] < ended_ns for row in rows)
        assert all(row["observed_at"] - row["latency_ms"] * 1e6 > began_ns for row in rows)  # read after the submission
        assert [row["observed_at"] for row in rows] == sorted(row["observed_at"] for row in rows)
    with client(a1, a1) as everything, pytest.raises(SinkLogError, match="latency_log_bytes") as unknown:
        everything.locate("_latency3.both")  # the rows of `bare` do not say when they were read
    assert unknown.value.reason == UNKNOWN_SINK


def test_a_user_cannot_write_the_systems_logs(two: Mesh, tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(CODE)
    (tmp_path / "readings.csv").write_text("1,1\n")
    ran = cli(
        *("submit", f"{tmp_path}/twice.py:twice", "--name", "thief", "--set", f"readings=csv:{tmp_path}/readings.csv"),
        *("--set", "out=log:_latency.both", "--set", "other=null:", "--set", "bare=null:"),
        *("--agent", str(two.agents[0].state_dir)),
    )
    assert ran.returncode != 0
    assert "names that begin with _ are those of the system's own logs" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_log_is_readable_after_its_node_was_killed_and_returned(tmp_path: Path) -> None:
    with mesh(2) as made:
        a1, a2 = made.agents
        submit(a1, tmp_path, "cut", 60_000, 1, "a2", "a1")
        log = "_latency.cut"
        with client(a1, a1, f"sink:{log}") as reader:
            where = wait_for(lambda: _located(reader, log), 20, "the log is known")
            assert where.node == "a2"
            end = 0
            while end < 40:
                end = reader.ends(log, wait_ms=5_000, after={0: end}).partitions[0].committed
            before = samples(reader, log, end)
            a2.kill()
            wait_for(lambda: state_of(a1, "cut") == "failed", 30, "the application has failed")
            a2.start()
            a2.ready()
            after = samples(reader, log)
        assert after[: len(before)] == before
        assert [row["sequence"] for row in after] == [n for n in range(after[-1]["sequence"] + 1) if is_sampled(0, n)]


def test_an_agent_configured_without_logs_keeps_none(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text("[agent]\nlatency_log_bytes = 0\n")
    with mesh(1, "--config", str(config)) as made:
        (a1,) = made.agents
        submit(a1, tmp_path, "none", 300, 1, "a1", "a1")
        wait_for(lambda: state_of(a1, "none") == "finished", 60, "the application has finished")
        assert not (a1.state_dir / "sink-logs").exists()
        shown = cli("config", "show", "--config", str(config), "-o", "json")
        assert json.loads(shown.stdout)["agent.latency_log_bytes"]["value"] == 0


def _located(reader: SinkLogClient, log: str) -> Any:
    try:
        return reader.locate(log)
    except SinkLogError:
        return None
