"""Feeds through real agents: created by the command line, written through any agent, read by applications."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_node.wire.commands import CreateToken
from agiledart_sink_log.client import SinkLogClient, SinkLogError
from agiledart_sink_log.feed_client import FeedClient, FeedError
from agiledart_sink_log.feed_protocol import INVALID, UNKNOWN_FEED, StagePart
from agiledart_transport.request_reasons import NOT_ALLOWED
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e]

SCHEMA = msgspec.json.encode(
    [{"name": "route", "type": "string", "nullable": True}, {"name": "seconds", "type": "float", "nullable": True}]
)
Rows = list[tuple[str, float]]


@pytest.fixture(scope="module")
def two() -> Iterator[Mesh]:
    with mesh(2) as made:
        yield made


def writer(asked: AgentProcess, founder: AgentProcess, scope: str, role: str = "writer") -> FeedClient:
    token = str(founder.ask(CreateToken(role=role, scope=scope))["token"])
    return FeedClient([asked.address], identity_from_token(token)[0], agent_timeout_s=20.0)


def publish(client: FeedClient, feed: str, batch: int, rows: Rows) -> tuple[int, int, bool]:
    client.stage(feed, ("query", batch), (0, 0), 0, SCHEMA, msgspec.msgpack.encode(rows), len(rows))
    answer = client.publish(feed, ("query", batch), SCHEMA, (StagePart(0, 0, 1, len(rows)),))
    return answer.first, answer.end, answer.is_repeat


def rows_of(asked: AgentProcess, founder: AgentProcess, feed: str) -> Rows:
    token = str(founder.ask(CreateToken(role="reader", scope=f"sink:{feed}"))["token"])
    with SinkLogClient([asked.address], identity_from_token(token)[0], agent_timeout_s=20.0) as reader:
        at, end, rows = 0, reader.ends(feed).partitions[0].committed, []
        while at < end:
            fetched = reader.fetch(feed, 0, at)
            rows += [tuple(row) for batch in fetched.batches for row in msgspec.msgpack.decode(batch.body)]
            at = fetched.next_offset
        return rows


def test_a_feed_on_another_node_takes_rows_through_any_agent(two: Mesh) -> None:
    first, second = two.agents
    at = "--agent", str(first.state_dir)
    created = cli("feed", "create", "usual", "--at", second.name, *at)
    assert created.returncode == 0, created.stderr
    assert f"usual is a feed on {second.name}" in created.stderr
    again = cli("feed", "create", "usual", "--at", second.name, *at)
    assert (again.returncode, "there is a feed usual here already" in again.stderr) == (1, True), again.stderr
    client = writer(first, first, "feed:usual")
    assert publish(client, "usual", 0, [("a", 1.0), ("b", 2.0)]) == (0, 2, False)
    second.kill()
    second.start()
    second.ready()
    two.wait_for_ring()
    assert publish(client, "usual", 0, [("a", 1.0), ("b", 2.0)]) == (0, 2, True)
    assert publish(client, "usual", 1, [("c", 3.0)]) == (2, 3, False)
    assert rows_of(first, first, "usual") == [("a", 1.0), ("b", 2.0), ("c", 3.0)]
    (listed,) = msgspec.json.decode(cli("feed", "list", "-o", "json", *at).stdout)["feeds"]
    assert (listed["name"], listed["node"], listed["rows"], listed["staged_bytes"]) == ("usual", second.name, 3, 0)
    removed = cli("feed", "remove", "usual", *at)
    assert removed.returncode == 0, removed.stderr
    assert "There is no feed" in cli("feed", "list", *at).stdout


def test_refused_writers_learn_the_next_step(two: Mesh) -> None:
    first, second = two.agents
    assert cli("feed", "create", "prices", "--agent", str(first.state_dir)).returncode == 0
    with pytest.raises(FeedError, match="--role writer --scope feed:prices") as refused:
        publish(writer(second, first, "feed:others"), "prices", 0, [("a", 1.0)])
    assert refused.value.reason == NOT_ALLOWED
    with pytest.raises(FeedError, match="agiledart feed create") as unknown:
        publish(writer(second, first, ""), "nothing", 0, [("a", 1.0)])
    assert unknown.value.reason == UNKNOWN_FEED
    with pytest.raises(FeedError, match="does not fit the schema") as wrong:
        publish(writer(second, first, ""), "prices", 0, [("a", "text")])  # type: ignore[list-item]
    assert wrong.value.reason == INVALID
    with pytest.raises(FeedError, match=r"role\. Create a token .* --role writer"):
        publish(writer(second, first, "", "reader"), "prices", 0, [("a", 1.0)])


CODE = """
from typing import Any, NamedTuple

from agiledart import BroadcastOperator, Context, ReadTime, Sink, Source, Topology


class Trip(NamedTuple):
    route: str
    seconds: float
    read: ReadTime


class Usual(NamedTuple):
    route: str
    seconds: float
    read: ReadTime


class Flagged(NamedTuple):
    route: str
    seconds: float
    usual: float


class Compare(BroadcastOperator[str, Trip, int, Flagged, Usual, dict[str, float]]):
    def initial(self, key: str) -> int:
        return 0

    def initial_shared(self) -> dict[str, float]:
        return {}

    def on_broadcast(self, record: Usual, shared: dict[str, float]) -> None:
        shared[record.route] = record.seconds

    def on_record(self, key: str, record: Trip, state: int, context: Context[Flagged]) -> None:
        usual = context.shared.get(key)
        if usual is not None and record.seconds > usual:
            context.emit(Flagged(key, record.seconds, usual))


def read_ms(row: Any) -> int:
    return int(row.read) // 1_000_000


def build(trips: Source[Trip], usual: Source[Usual], out: Sink[Flagged], name: str = "flags") -> Topology:
    topology = Topology(name)
    durations = topology.source("usual", usual, event_time=read_ms, clock="wall")
    keyed = topology.source("trips", trips, event_time=read_ms, clock="wall").key_by(lambda trip: trip.route)
    keyed.connect(durations).stateful("compare", Compare()).sink("out", out)
    return topology
"""


def test_a_running_application_takes_each_new_model_from_a_feed(two: Mesh, tmp_path: Path) -> None:
    """The feed lies on another node than the application. Its agent is killed in between; the application does not restart."""
    first, second = two.agents
    at = "--agent", str(first.state_dir)
    assert cli("feed", "create", "model", "--at", second.name, *at).returncode == 0
    (tmp_path / "flags.py").write_text(CODE)
    trips = tmp_path / "trips.jsonl"
    trips.touch()
    sources = "--set", f"trips=jsonl:{trips}?follow=1", "--set", "usual=feed:model", "--set", "out=log:flags"
    submitted = cli("submit", f"{tmp_path / 'flags.py'}:build", *sources, *at)
    assert submitted.returncode == 0, submitted.stderr
    client = writer(first, first, "feed:model")

    def flagged_by(usual: float) -> bool:
        """A trip after the model has arrived is flagged by it."""
        with trips.open("a") as file:
            file.write(json.dumps({"route": "a", "seconds": 100.0}) + "\n")
        rows = rows_of(first, first, "flags")
        return bool(rows) and rows[-1][2] == usual

    publish(client, "model", 0, [("a", 10.0), ("b", 20.0)])
    wait_for(lambda: flagged_by(10.0), 20.0, "a trip flagged by the first model")
    second.kill()
    second.start()
    second.ready()
    publish(client, "model", 1, [("a", 50.0)])
    wait_for(lambda: flagged_by(50.0), 30.0, "a trip flagged by the second model")
    state = msgspec.json.decode(cli("status", "flags", "-o", "json", *at).stdout)
    assert state["state"] == "running"
    usual = [row[2] for row in rows_of(first, first, "flags")]
    assert usual == sorted(usual), "a newer model stays"
    assert cli("stop", "flags", "--now", *at).returncode == 0


def test_logs_of_all_nodes_are_found_by_a_pattern(two: Mesh) -> None:
    """A reader learns the names that it may read: with a scope none, as a submitter its own and those without an owner."""
    first, second = two.agents
    for name, node in (("city-york", first), ("city-porto", second), ("town", second)):
        assert cli("feed", "create", name, "--at", node.name, "--agent", str(first.state_dir)).returncode == 0
        publish(writer(first, first, ""), name, 0, [("a", 1.0)])

    def found(pattern: str, role: str, scope: str = "") -> tuple[str, ...]:
        token = str(first.ask(CreateToken(role=role, scope=scope))["token"])
        with SinkLogClient([second.address], identity_from_token(token)[0], agent_timeout_s=20.0) as reader:
            return reader.logs(pattern).sinks

    assert found("city-*", "reader") == ("city-porto", "city-york")
    assert found("c?ty-p*", "submitter") == ("city-porto",)
    with pytest.raises(SinkLogError, match="sink:city-york"):
        found("city-*", "reader", "sink:city-york")
