"""Rows of the tests and their order: by event time, then by source, then as they were read."""

from collections.abc import Iterable
from typing import Any, NamedTuple


class Row(NamedTuple):
    """A test row: event time in ms, key, values; `side` says from which of two sources it comes."""

    at: int
    key: str
    value: int
    weight: float
    side: int


class Placed(NamedTuple):
    """A row with its place in the order of everything: (time, 1, source, number)."""

    place: tuple[int, int, int, int]
    row: Row


def placed(rows: Iterable[Row]) -> list[Placed]:
    """The rows in the order in which positions put them: each source sorts by time, rows of one time stay as they came."""
    out: list[Placed] = []
    for side in (0, 1):
        mine = sorted((row for row in rows if row.side == side), key=lambda row: row.at)
        out += [Placed((row.at, 1, side, number), row) for number, row in enumerate(mine)]
    return sorted(out)


def in_order(results: Iterable[tuple[tuple[int, ...], Any]]) -> list[Any]:
    """Results (place, row) in order of place; those of one place as they were given."""
    return [row for _, row in sorted(results, key=lambda result: result[0])]


def timed(time_ms: int, cause: Placed) -> tuple[int, ...]:
    """The place of what happens by the passing of time, because of a row."""
    return (time_ms, 0, *cause.place[2:])


def keys_of(rows: Iterable[Placed]) -> list[str]:
    """The keys, each once."""
    return list(dict.fromkeys(one.row.key for one in rows))
