"""A lambda's return type is read from its instructions: it is never called while a topology is built."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from agiledart_dataflow.data.inference import UnknownTypeError, traced_type
from agiledart_dataflow.graph.topology import Topology


class Room(NamedTuple):
    house: str
    number: int


class Row(NamedTuple):
    at: int
    celsius: float
    room: Room

    @property
    def half(self) -> float:
        return self.celsius / 2

    def where(self) -> Room:
        return self.room

    def untold(self):  # type: ignore[no-untyped-def]  # as users write
        return self.room


@dataclass
class Kept:
    celsius: float


def labelled(row: Row) -> str:
    raise AssertionError("user code ran")


class Refusing:
    """A class that must not be made."""

    def __init__(self, value: float) -> None:
        raise AssertionError("user code ran")


CALLS: list[object] = []


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda r: r.celsius, float),
        (lambda r: r.room.number, int),
        (lambda r: r[2], Room),
        (lambda r: r, Row),
        (lambda r: (r.at, r.room.house), tuple[int, str]),
        (lambda r: (r.at, 1.5, "x"), tuple[int, float, str]),
        (lambda r: (r.at,), tuple[int]),
        (lambda r: f"{r.room.house}/{r.room.number!r:>4}", str),
        (lambda r: str(r.at), str),
        (lambda r: int(r.celsius), int),
        (lambda r: Room("a", r.at), Room),
        (lambda r: Room(number=r.at, house="a"), Room),
        (lambda r: Kept(r.celsius), Kept),
        (lambda r: Refusing(r.celsius), Refusing),
        (lambda r: labelled(r), str),
        (lambda r: r.half, float),
        (lambda r: r.where().number, int),
        (lambda r, limit=5: (r.at, limit), tuple[int, int]),
        (lambda r: "all", str),
    ],
)
def test_types_of_field_access_and_tuples_are_inferred(function: Callable[[Any], Any], kind: Any) -> None:
    assert traced_type(function, Row) == kind


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda r: r.at + 1, "computes"),
        (lambda r: r.at > 1, "computes"),
        (lambda r: r.at if r.celsius else 0, "decides"),
        (lambda r: r.room.house.upper(), r"calls \.upper\(\)"),
        (lambda r: r.untold(), "no return annotation"),
        (lambda r: r.missing, r"uses \.missing"),
        (lambda r: CALLS.append(r), r"calls \.append\(\)"),
        (lambda r: nowhere(r), "uses nowhere"),  # type: ignore[name-defined]  # noqa: F821  as users write
        (lambda r: [part.x for part in r], "another function|decides|more than"),
        (lambda r: r[7], r"no \[7\]"),
        (lambda r: lambda: r, "another function|more than"),
        (lambda: 1 + CALLS, "computes"),  # type: ignore[operator]
    ],
)
def test_other_lambdas_need_an_explicit_type(function: Callable[[Any], Any], why: str) -> None:
    with pytest.raises(UnknownTypeError, match=why):
        traced_type(function, Row)
    assert CALLS == []


def test_a_lambda_that_prints_does_not_print_when_a_topology_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Topology("t").source("rows", [Row(1, 1.0, Room("a", 1))], rows=Row)
    rows.map(lambda r: (print(r), r)[1], "shown", returns=Row).key_by(lambda r: r.room).running_count("n")
    assert capsys.readouterr().out == ""
