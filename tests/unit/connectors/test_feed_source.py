"""The source `feed:`: rows in order, once, from a position on; types that do not fit are named; nothing waits for the agent."""

import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart_connectors.feed_requests import FeedRows
from agiledart_connectors.logs.feed_source import FeedReader, open_source, probe_source
from agiledart_connectors.options import ReadOptions
from agiledart_connectors.source_origin import SourceOrigin
from agiledart_dataflow.data.schema import ReadTime
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.protocol import StoredBatch

FEED = parse_connector("feed:usual")
FIELDS = [
    {"name": "version", "type": "int", "nullable": True},
    {"name": "route", "type": "string", "nullable": True},
    {"name": "seconds", "type": "float", "nullable": True},
]


class Usual(NamedTuple):
    route: str
    seconds: float
    read: ReadTime


@dataclass
class Route:
    route: str
    version: float


class FakeAgent:
    """Answers requests of a source from rows in memory, when a test says so."""

    def __init__(self, rows: list[tuple[Any, ...]], log_id: str = "a", first: int = 0) -> None:
        self.rows, self.log_id, self.first = rows, log_id, first
        self.fields = FIELDS
        self.asked: list[tuple[str, int, Callable[[FeedRows], None]]] = []

    def fetch(self, feed: str, offset: int, take: Callable[[FeedRows], None]) -> None:
        self.asked.append((feed, offset, take))

    def answer(self, **failure: str) -> None:
        ((_, offset, take),) = self.asked
        self.asked = []
        if failure:
            take(FeedRows(**failure))  # type: ignore[arg-type]
            return
        fields = msgspec.json.encode(self.fields)
        if offset < self.first:
            take(FeedRows(self.log_id, fields, first=self.first))
            return
        begin = offset - offset % 2  # stored batches are whole: the first one may begin before the offset
        part = self.rows[begin:]
        batches = (StoredBatch(begin, len(part), msgspec.msgpack.encode(part)),) if part else ()
        take(FeedRows(self.log_id, fields, batches))


def reader(agent: FakeAgent, row_type: Any = Usual) -> FeedReader:
    return open_source(FEED, row_type, ReadOptions(origin=SourceOrigin(feeds=agent)))


def rows(count: int, version: int = 1) -> list[tuple[Any, ...]]:
    return [(version, f"r{number}", float(number)) for number in range(count)]


def drained(source: FeedReader, agent: FakeAgent, most: int = 100) -> list[Any]:
    found: list[Any] = []
    for _ in range(5):
        found += source.read(most, 7_000).rows
        if agent.asked:
            agent.answer()
    return found


def test_rows_come_once_in_order_with_the_fields_of_their_names() -> None:
    agent = FakeAgent(rows(5))
    source = reader(agent)
    assert drained(source, agent, 2) == [Usual(f"r{n}", float(n), ReadTime(7_000)) for n in range(5)]
    agent.rows += rows(7)[5:]
    assert [row.route for row in drained(source, agent)] == ["r5", "r6"]
    other = reader(FakeAgent(rows(2)), Route)
    other.read(10, 0)
    agent = other._feeds  # type: ignore[assignment]
    agent.answer()
    assert other.read(10, 0).rows == [Route("r0", 1.0), Route("r1", 1.0)]


def test_a_reading_waits_for_the_descriptor_and_asks_once() -> None:
    agent = FakeAgent(rows(1))
    source = reader(agent)
    assert source.read(10, 0).drained
    assert source.read(10, 0).drained
    assert len(agent.asked) == 1
    assert not select.select([source.fileno()], [], [], 0)[0]
    agent.answer()
    assert select.select([source.fileno()], [], [], 0)[0]
    assert [row.route for row in source.read(10, 0).rows] == ["r0"]


@pytest.mark.parametrize("handed_out", range(6))
def test_a_restart_goes_on_behind_its_position(handed_out: int) -> None:
    agent = FakeAgent(rows(6))
    source = reader(agent)
    source.read(1, 0)
    agent.answer()
    first = source.read(handed_out, 0).rows if handed_out else []
    again = reader(agent)
    agent.asked = []
    again.seek(source.position())
    assert [row.route for row in first + drained(again, agent)] == [f"r{n}" for n in range(6)]


def test_removed_rows_are_reported_and_skipped() -> None:
    agent = FakeAgent(rows(6))
    source = reader(agent)
    assert len(drained(source, agent)) == 6
    agent.rows, agent.first = rows(10), 8
    notes: list[str] = []
    left: list[Any] = []
    for _ in range(4):
        reading = source.read(100, 0)
        notes, left = [*notes, *reading.notes], [*left, *reading.rows]
        agent.answer() if agent.asked else None
    assert [row.route for row in left] == ["r8", "r9"]
    assert notes == ["feed usual: 2 rows were removed before they were read"]


def test_a_feed_that_was_created_anew_is_read_from_its_beginning() -> None:
    agent = FakeAgent(rows(6))
    source = reader(agent)
    drained(source, agent)
    agent.rows, agent.log_id = rows(2, version=2), "b"
    assert [row.route for row in drained(source, agent)] == ["r0", "r1"]
    assert msgspec.msgpack.decode(source.position()) == ["b", 2]


def test_null_where_none_may_be_is_counted_as_malformed() -> None:
    agent = FakeAgent([(1, "a", None), (1, None, 2.0), (1, "b", 3.0)])
    source = reader(agent)
    source.read(10, 0)
    agent.answer()
    reading = source.read(10, 0)
    assert ([row.route for row in reading.rows], reading.malformed, reading.lines) == (["b"], {"type": 2}, 3)


def test_fields_that_do_not_fit_end_the_source_with_both_named() -> None:
    class Wrong(NamedTuple):
        route: int

    agent = FakeAgent(rows(1))
    source = reader(agent, Wrong)
    source.read(10, 0)
    agent.answer()
    with pytest.raises(
        OperationFailed, match="version: int, route: string, seconds: float; its rows here need route: int"
    ):
        source.read(10, 0)


def test_an_absent_feed_is_shown_and_asked_again() -> None:
    agent = FakeAgent(rows(1))
    source = reader(agent)
    source.read(10, 0)
    agent.answer(away="the feed usual cannot be read: it was not created yet")
    assert source.connection_status().endswith("it was not created yet")
    assert len(drained(source, agent)) == 1
    assert source.connection_status() == ""


def test_a_refusal_ends_the_source() -> None:
    agent = FakeAgent([])
    source = reader(agent)
    source.read(10, 0)
    agent.answer(refused="the feed usual belongs to another")
    with pytest.raises(OperationFailed, match="belongs to another"):
        source.read(10, 0)


def test_without_a_mesh_or_records_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on a mesh only"):
        open_source(FEED, Usual, ReadOptions())
    with pytest.raises(ConfigurationError, match="NamedTuples or dataclasses"):
        probe_source(FEED, str)
    with pytest.raises(ConfigurationError, match="cannot be the name"):
        probe_source(parse_connector("feed:../x"), Usual)
    assert probe_source(FEED, Usual) == "can be read once it has rows"
