"""Feeds through real agents: created by the command line, written through any agent, read by applications."""

from collections.abc import Iterator

import msgspec
import pytest

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_node.wire.commands import CreateToken
from agiledart_sink_log.client import SinkLogClient, SinkLogError
from agiledart_sink_log.feed_client import FeedClient, FeedError
from agiledart_sink_log.feed_protocol import INVALID, NOT_ALLOWED, UNKNOWN_FEED, StagePart
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("feeds")]

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
        end = reader.ends(feed).partitions[0].committed
        fetched = reader.fetch(feed, 0, 0) if end else None
        batches = fetched.batches if fetched is not None else ()
        return [tuple(row) for batch in batches for row in msgspec.msgpack.decode(batch.body)]


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


def test_refusals_of_writers_say_the_next_step(two: Mesh) -> None:
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
    with pytest.raises(SinkLogError, match="role"):
        publish(writer(second, first, "", "reader"), "prices", 0, [("a", 1.0)])
