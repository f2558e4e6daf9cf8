"""The builder: types flow, names are unique, and every mistake is reported at its line with a fix."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any, NamedTuple

import pytest

from agiledart import (
    Aggregator,
    Change,
    Context,
    KeyedOperator,
    Pane,
    Ranking,
    Source,
    Stream,
    Topology,
    TopologyError,
    collect,
    csv,
    hopping,
    mean_of,
    records,
    sliding,
    stdout,
    tumbling,
)
from agiledart_dataflow.data.schema import type_text

MINUTE = timedelta(minutes=1)


class Reading(NamedTuple):
    """A row."""

    at: datetime
    room: str
    floor: int
    celsius: float


@dataclass
class Mutable:
    """No key."""

    room: str


def source(topology: Topology | None = None) -> Stream[Reading]:
    """A stream of readings."""
    return (topology or Topology("rooms")).source("readings", records([], row_type=Reading), event_time=lambda r: r.at)


def row_type(stream: Stream[Any]) -> Any:
    """The type of the rows, as the builder found it."""
    return stream._rows.type


def warm(reading: Reading) -> str | None:
    """A row or nothing."""
    return reading.room if reading.celsius > 20 else None


def words(reading: Reading) -> Iterator[str]:
    """Several rows."""
    yield from reading.room.split()


def room_of(reading: Reading) -> str:
    """One row."""
    return reading.room


class Bag:
    """Not a row: no annotations, no wire form."""


def bag_of(reading: Reading) -> Bag:
    """Rows that cannot travel."""
    return Bag()


def unannotated(reading):  # type: ignore[no-untyped-def]  # that is the point
    """Says nothing about its result."""
    return reading.room


class Counter(KeyedOperator[str, Reading, list[int], tuple[str, int]]):
    """A keyed operator."""

    def initial(self, key: str) -> list[int]:
        return []

    def on_record(self, key: str, record: Reading, state: list[int], context: Context[tuple[str, int]]) -> None: ...


class Untyped(KeyedOperator):  # type: ignore[type-arg]  # that is the point
    """Does not say its types."""

    def initial(self, key: Any) -> Any: ...
    def on_record(self, key: Any, record: Any, state: Any, context: Any) -> None: ...


class Median(Aggregator[Reading, list[float], float]):
    """A custom aggregate."""

    def create(self) -> list[float]:
        return []

    def add(self, state: list[float], row: Reading) -> list[float]:
        return [*state, row.celsius]

    def result(self, state: list[float]) -> float:
        return sorted(state)[len(state) // 2]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda s: s, Reading),
        (lambda s: s.map(room_of), str),
        (lambda s: s.map(lambda r: r.celsius, name="c"), float),
        (lambda s: s.map(lambda r: (r.room, r.floor), name="c"), tuple[str, int]),
        (lambda s: s.map(lambda r: f"{r.room}-{r.floor}", name="c"), str),
        (lambda s: s.map(lambda r: r.celsius * 2, name="c", returns=float), float),
        (lambda s: s.filter(lambda r: r.floor > 1, name="up"), Reading),
        (lambda s: s.flat_map(warm), str),
        (lambda s: s.flat_map(words), str),
        (lambda s: s.flat_map(lambda r: [r.floor], name="f", returns=int), int),
        (lambda s: s.key_by(lambda r: r.room).window(sliding(MINUTE)).count("n"), Change[str, int, Reading]),
        (lambda s: s.key_by(lambda r: r).window(tumbling(MINUTE)).count("n"), Pane[Reading, int]),
        (
            lambda s: (
                s.key_by(lambda r: (r.room, r.floor)).window(hopping(2 * MINUTE, MINUTE)).aggregate("m", Median())
            ),
            Pane[tuple[str, int], float],
        ),
        (
            lambda s: s.key_by(lambda r: r.room).window(sliding(MINUTE)).aggregate("m", mean_of(lambda r: r.celsius)),
            Change[str, float, Reading],
        ),
        (
            lambda s: s.key_by(lambda r: r.room).window(sliding(MINUTE)).count("n").top("t", n=3),
            Ranking[Reading, str, int],
        ),
        (lambda s: s.key_by(room_of).stateful("c", Counter()), tuple[str, int]),
        (lambda s: s.union(s.filter(lambda r: r.floor, name="f"), name="both"), Reading),
    ],
)
def test_row_types_follow_from_annotations_and_lambdas(build: Callable[[Stream[Reading]], Any], expected: Any) -> None:
    assert row_type(build(source())) == expected


def tell(build: Callable[[Stream[Reading]], Any]) -> str:
    """The error's text; it must name this file and the line of the call."""
    stream = source()
    with pytest.raises(TopologyError) as error:
        build(stream)
    text = str(error.value)
    assert text.startswith("test_topology.py:")
    return text


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.map(lambda r: r.room), ["lambda", "name="]),
        (lambda s: s.filter(lambda r: True), ["lambda", "name="]),
        (lambda s: s.map(lambda r: r.celsius + 1, name="x"), ["returns=", "computes"]),
        (lambda s: s.map(lambda r: r.fahrenheit, name="x"), ["returns=", ".fahrenheit"]),
        (lambda s: s.map(unannotated), ["annotate", "returns="]),
        (lambda s: s.map(bag_of), ["bag_of", "Bag", "NamedTuple"]),
        (lambda s: s.flat_map(room_of), ["X | None", "returns="]),
        (lambda s: s.flat_map(lambda r: [r], name="x"), ["returns="]),
        (lambda s: s.key_by(lambda r: r.room.lower()), ["key", "returns=str"]),
        (lambda s: s.key_by(lambda r: [r.room], returns=list), ["key"]),
        (lambda s: s.key_by(lambda r: r.room, returns=list[str]), ["key", "tuple"]),
        (lambda s: s.key_by(lambda r: Mutable(r.room), returns=Mutable), ["key", "frozen=True"]),
        (
            lambda s: s.key_by(lambda r: r.room, returns=frozenset[str]),
            ["a frozenset cannot be a key", "frozen dataclasses"],
        ),
        (lambda s: s.key_by(lambda r: r.room, returns=tuple[str, time]), ["a time cannot be a key"]),
        (lambda s: s.key_by(room_of).window(sliding(MINUTE)).count(), ["count()"]),
        (lambda s: s.key_by(room_of).window(MINUTE), ["sliding("]),
        (lambda s: s.key_by(room_of).window(sliding(MINUTE)).aggregate("x", sum), ["aggregator"]),
        (lambda s: s.key_by(room_of).stateful("x", Counter), ["Counter()"]),
        (lambda s: s.key_by(room_of).stateful("x", Untyped()), ["Untyped", "KeyedOperator["]),
        (lambda s: s.top("x", n=3), ["Change"]),
        (lambda s: s.key_by(room_of).window(sliding(MINUTE)).count("n").top("t", n=0), ["places"]),
        (lambda s: s.key_by(room_of).window(sliding(MINUTE)).count("n").top("t", n=1, ties="?"), ["ties"]),
        (lambda s: s.filter(room_of).filter(room_of), ["already a step 'room_of'", "found by name"]),
        (lambda s: s.map(room_of, name="a b"), ["'a b'", "letters"]),
        (lambda s: s.union(name="u"), ["other stream"]),
        (lambda s: s.union(source(), name="u"), ["one topology"]),
        (lambda s: s.union(s.map(room_of), name="u"), ["one type"]),
        (lambda s: s.sink("out", "out.csv"), ["csv('out.csv')"]),
        (
            lambda s: s.map("m", lambda r: r.room),
            ['map takes the function first, then the name: .map(function, name="m")'],
        ),
        (lambda s: s.filter("f", room_of), ['.filter(function, name="f")']),
        (lambda s: s.flat_map("n", room_of), ['.flat_map(function, name="n")']),
        (lambda s: s.map(5), ["map() takes a function of a row, not 5"]),
        (lambda s: s.window(tumbling(MINUTE)), ["window()", ".key_by(function).window(…)"]),
        (lambda s: s.stateful("x", Counter()), [".key_by(function).stateful(…)"]),
        (lambda s: s.count("n"), [".key_by(function).window(tumbling(size)).count(…)"]),
        (lambda s: s.aggregate("n", mean_of(lambda r: r.celsius)), [".window(tumbling(size)).aggregate(…)"]),
        (lambda s: s.key_by(room_of).sink("out", stdout()), ["sink()", "write .sink(…) before .key_by(…)"]),
        (lambda s: s.key_by(room_of).map(room_of), ["write .map(…) before .key_by(…)", ".window(…)"]),
        (lambda s: s.key_by(room_of).filter(room_of), ["write .filter(…) before .key_by(…)"]),
        (lambda s: s.key_by(room_of).count("n"), ['.window(tumbling(size)).count("name")']),
        (lambda s: s.key_by(room_of).top("t", n=1), ['.window(sliding(size)).count("name").top(…)']),
        (lambda s: s.key_by(room_of).window(sliding(MINUTE)).sink("out", stdout()), ['.count("name")', ".sink(…)"]),
        (lambda s: s.key_by(room_of).window(tumbling(MINUTE)).top("t", n=1), ["of a sliding window"]),
    ],
)
def test_mistakes_are_reported_at_their_line_with_a_fix(build: Callable[[Stream[Any]], Any], words: list[str]) -> None:
    try:
        text = tell(build)
    except TypeError as error:  # Python reports a forgotten positional name
        text = str(error)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Topology(""), "cannot name"),
        (lambda: Topology("a/b"), "cannot name"),
        (lambda: Topology("x").source("s", "file.csv", event_time=lambda r: r), "csv('file.csv')"),
        (lambda: Topology("x").source("s", csv("file.csv"), event_time=lambda r: r.at), "rows="),
        (lambda: Topology("x").source("s", [], event_time=lambda r: r), "rows="),
        (
            lambda: Topology("x").source("s", [1], event_time=lambda r: r, max_out_of_order=-MINUTE),
            "below zero",
        ),
        (lambda: Topology("x").specification(), "no source"),
        (lambda: source().map(room_of)._rows.graph.specification(), "no step takes the rows of 'room_of'"),
    ],
)
def test_mistakes_of_the_whole_graph_are_reported(build: Callable[[], Any], words: str) -> None:
    with pytest.raises(TopologyError, match=r"test_topology\.py:") as error:
        build()
    assert words in str(error.value)


def rooms(readings: Source[Reading] = csv("rooms.csv"), report: Any = stdout()) -> Topology:  # noqa: B008  values
    """A builder whose annotation says the type of the rows."""
    topology = Topology("rooms")
    topology.source("readings", readings, event_time=lambda r: r.at).sink("report", report)
    return topology


def test_the_builders_annotation_gives_the_row_type() -> None:
    assert rooms().steps[0].row_type is Reading
    assert rooms(csv("other.csv", at="pi2")).steps[0].at == "pi2"


def test_equal_builders_have_equal_digests_and_any_difference_changes_it() -> None:
    digests = [
        rooms().specification().digest(),
        rooms(csv("other.csv")).specification().digest(),
        rooms(report=csv("out.csv")).specification().digest(),
        rooms(csv("rooms.csv", at="pi2")).specification().digest(),
    ]
    assert rooms().specification().digest() == digests[0]
    assert len(set(digests)) == 4


def test_a_specification_holds_no_file_names_of_the_code() -> None:
    assert "test_topology" not in repr(rooms().specification())


def test_local_sources_and_sinks_are_recognised() -> None:
    assert rooms(records([], row_type=Reading), collect).local_only == ["readings", "report"]
    assert rooms().local_only == []


def test_the_text_of_a_type_is_its_structure() -> None:
    assert type_text(Reading) == "Reading(at: datetime, room: str, floor: int, celsius: float)"
    assert type_text(Change[str, int, Reading]).startswith("Change(key: str, value: None | int, cause: None | Reading(")
    assert type_text(tuple[int, ...]) == "tuple[int, ...]"


def many(reading: Reading) -> Iterable[str]:
    """Annotated as any iterable."""
    return [reading.room]


def test_an_unknown_stream_attribute_is_an_attribute_error() -> None:
    keyed = source().key_by(room_of)
    for stream in (source(), keyed, keyed.window(sliding(MINUTE)), keyed.window(tumbling(MINUTE))):
        assert not hasattr(stream, "windows")
        assert type(copy(stream)) is type(stream)


def test_steps_are_named_after_their_function() -> None:
    topology = Topology("names")
    source(topology).flat_map(many).map(str.upper, name="upper", returns=str).sink("out", collect)
    assert [step.name for step in topology.steps] == ["readings", "many", "upper", "out"]
