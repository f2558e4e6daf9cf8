"""Sink logs through real processes: written by executors, found through any agent, read on after whatever happens to the writer."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_node.wire.commands import CreateToken
from agiledart_sink_log.client import SinkLogClient, SinkLogError
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.protocol import TRIMMED, UNKNOWN_SINK
from agiledart_transport.request_reasons import NO_AGENT, NOT_ALLOWED
from tests.e2e.mesh import AgentProcess, Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e]

ENTRY = "agiledart_examples.debs2015:frequent_routes"


@pytest.fixture(scope="module")
def three() -> Iterator[Mesh]:
    with mesh(3) as made:
        yield made


def client(
    agents: list[AgentProcess], token_from: AgentProcess, *, scope: str = "", agent_timeout_s: float = 20.0
) -> SinkLogClient:
    token = str(token_from.ask(CreateToken(role="reader", scope=scope))["token"])
    return SinkLogClient(
        [agent.address for agent in agents], identity_from_token(token)[0], agent_timeout_s=agent_timeout_s
    )


def submit(agent: AgentProcess, name: str, source: str, sink: str, *options: str) -> None:
    ran = cli(
        "submit",
        ENTRY,
        "--name",
        name,
        "--set",
        f"trips={source}",
        "--set",
        f"report={sink}",
        "--agent",
        str(agent.state_dir),
        *options,
    )
    assert ran.returncode == 0, ran.stderr


def state_of(agent: AgentProcess, name: str) -> str:
    ran = cli("status", name, "-o", "json", "--agent", str(agent.state_dir))
    return str(msgspec.json.decode(ran.stdout)["state"]) if ran.stdout else ran.stderr


def rows_from(reader: SinkLogClient, sink: str, start: int, stop: int, partition: int = 0) -> list[Any]:
    """Rows `start` to `stop` (without), checked to follow each other."""
    rows: list[Any] = []
    while start + len(rows) < stop:
        got = reader.fetch(sink, partition, start + len(rows), max_rows=500)
        for batch in got.batches:
            inside = msgspec.msgpack.decode(batch.body)
            assert len(inside) == batch.rows
            rows += inside[start + len(rows) - batch.offset :]
        assert got.next_offset == start + len(rows)
    return rows[: stop - start]


def reference(source: str) -> list[Any]:
    """Output of the same topology in one process."""
    with tempfile.TemporaryDirectory() as folder:
        ran = cli("run", ENTRY, "--set", f"trips={source}", "--set", "report=log:here", cwd=folder)
        assert ran.returncode == 0, ran.stderr
        found = LogReader(Path(folder) / "sink-logs" / "here")
        rows: list[Any] = []
        while len(rows) < found.ends(0).committed:
            batches, _, _ = found.fetch(0, len(rows), 10_000, 1 << 20)
            for batch in batches:
                rows += msgspec.msgpack.decode(batch.body)
        return rows


def without_read_times(rows: list[Any]) -> list[Any]:
    """Read times differ from run to run: they are the wall clock's nanoseconds."""
    return [[0 if isinstance(v, int) and v > 10**18 else v for v in row] for row in map(_flat, rows)]


def _flat(value: Any) -> list[Any]:
    return [one for part in value for one in _flat(part)] if isinstance(value, list) else [value]


def test_a_log_written_on_one_node_is_read_through_any(three: Mesh) -> None:
    source = "taxi:?count=2000"
    a1, a2, a3 = three.agents
    submit(a1, "plain", f"{source}@a3", "log:plain@a2")
    wait_for(lambda: state_of(a1, "plain") == "finished", 60, "the application has finished")
    expected = without_read_times(reference(source))
    assert expected
    for asked in (a1, a2, a3):
        with client([asked], a1, scope="sink:plain") as reader:
            where = reader.locate("plain")
            assert (where.node, where.application, where.partitions) == ("a2", "plain", 1)
            assert {field["name"] for field in msgspec.json.decode(where.schema)["fields"]}
            ends = reader.ends("plain")
            assert not ends.is_open
            assert ends.partitions[0].first == 0
            assert without_read_times(rows_from(reader, "plain", 0, ends.partitions[0].committed)) == expected


def test_a_second_run_appends_at_the_end_and_another_type_is_refused(three: Mesh) -> None:
    a1 = three.agents[0]
    with client([a1], a1) as reader:
        for run in (1, 2):
            submit(a1, "twice", "taxi:?count=800@a3", "log:twice@a2")
            wait_for(lambda: state_of(a1, "twice") == "finished", 60, "the application has finished")
            count = reader.ends("twice").partitions[0].committed
            rows = without_read_times(rows_from(reader, "twice", 0, count))
            assert rows[: count // run] == rows[count - count // run :]
    ran = cli(
        "submit", "agiledart_examples.debs2015:profitable_areas", "--name", "other", "--set", "trips=taxi:?count=800@a3",
        "--set", "report=log:twice@a2", "--agent", str(a1.state_dir),
    )  # fmt: skip
    assert ran.returncode == 1
    assert "holds rows of another type" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_grants_and_names_are_checked_with_clear_messages(three: Mesh) -> None:
    a1, a2, _ = three.agents
    with client([a2], a1, scope="sink:elsewhere") as narrow:
        with pytest.raises(SinkLogError, match="agiledart token create --role reader --scope sink:plain") as refused:
            narrow.locate("plain")
        assert refused.value.reason == NOT_ALLOWED
        with pytest.raises(SinkLogError, match="no log elsewhere in this network") as unknown:
            narrow.ends("elsewhere")
        assert unknown.value.reason == UNKNOWN_SINK
    with pytest.raises(SinkLogError, match="No agent answers") as nobody:
        SinkLogClient(["127.0.0.1:1"], client([a1], a1).identity, agent_timeout_s=0.5).locate("plain")
    assert nobody.value.reason == NO_AGENT


def test_a_trimmed_log_reports_it(three: Mesh) -> None:
    a1 = three.agents[0]
    submit(a1, "small", "taxi:?count=4000@a3", "log:small?max_bytes=64KiB@a2")
    wait_for(lambda: state_of(a1, "small") == "finished", 60, "the application has finished")
    with client([a1], a1) as reader:
        ends = reader.ends("small").partitions[0]
        assert 0 < ends.first < ends.committed
        with pytest.raises(SinkLogError, match="were trimmed by") as trimmed:
            reader.fetch("small", 0, 0)
        assert (trimmed.value.reason, trimmed.value.first_kept) == (TRIMMED, ends.first)
        assert rows_from(reader, "small", ends.first, ends.committed)
    folder = three.agent("a2").state_dir / "sink-logs" / "small" / "0"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2 * (64 << 10)


def test_a_killed_run_restarts_elsewhere_and_its_log_is_read_on() -> None:
    source = "taxi:?count=20000&speed=600"
    with mesh(3) as made:
        a1, a2, a3 = made.agents
        submit(a1, "stream", f"{source}@a3", "log:stream@a2", "--delivery", "at-most-once")
        with client([a1, a3], a1, agent_timeout_s=60.0) as reader:
            rows: list[Any] = []
            after: dict[int, int] = {}
            while len(rows) < 300:
                ends = reader.ends("stream", wait_ms=5_000, after=after).partitions[0]
                after = {0: ends.committed}
                rows += rows_from(reader, "stream", len(rows), ends.committed)
            was = reader.locate("stream").address
            a2.kill()
            wait_for(lambda: state_of(a1, "stream") == "failed", 30, "the application has failed")
            a2.start()
            a2.ready()
            assert a2.address != was
            end = reader.ends("stream").partitions[0].committed
            assert end >= len(rows)
            rows += rows_from(reader, "stream", len(rows), end)
            assert reader.locate("stream").address == a2.address
            assert rows == rows_from(reader, "stream", 0, end)
        expected = without_read_times(reference(re.sub("&speed.*", "", source)))
        assert without_read_times(rows) == expected[: len(rows)]
