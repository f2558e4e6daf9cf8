"""Windows and running values, from all rows at once."""

from collections.abc import Callable, Sequence
from typing import Any

from agiledart import Change, Entry, Pane, Ranking
from tests.reference.rows import Placed, Row, in_order, keys_of, timed

Value = Callable[[list[Row]], Any]


def sessions(rows: Sequence[Placed], gap: int, value: Value) -> list[Any]:
    """Cut each key's rows where the next one comes `gap` or more after the one before."""
    out = []
    for key in keys_of(rows):
        mine = [one for one in rows if one.row.key == key]
        starts = [i for i in range(len(mine)) if i == 0 or mine[i].row.at - mine[i - 1].row.at >= gap]
        for start, stop in zip(starts, [*starts[1:], len(mine)], strict=True):
            inside = mine[start:stop]
            end = inside[-1].row.at + gap
            out.append((timed(end, inside[-1]), Pane(key, inside[0].row.at, end, value([one.row for one in inside]))))
    return in_order(out)


def counted(rows: Sequence[Placed], size: int, every: int, value: Value) -> list[Any]:
    """Full windows of `size` rows of a key that begin at its rows number 0, every, 2 × every …"""
    out = []
    for key in keys_of(rows):
        mine = [one for one in rows if one.row.key == key]
        for start in range(0, len(mine) - size + 1, every):
            inside = mine[start : start + size]
            pane = Pane(key, inside[0].row.at, inside[-1].row.at + 1, value([one.row for one in inside]))
            out.append((inside[-1].place, pane))
    return in_order(out)


def running(rows: Sequence[Placed], value: Value) -> list[Any]:
    """At each row the value of all rows of its key up to it."""
    out = []
    for number, one in enumerate(rows):
        mine = [other.row for other in rows[: number + 1] if other.row.key == one.row.key]
        out.append(Change(one.row.key, value(mine), one.row))
    return out


def panes(rows: Sequence[Placed], size: int, every: int, value: Value) -> list[Any]:
    """Windows [start, start + size) of each key, by end, then by their first row."""
    out = []
    for key in keys_of(rows):
        for start in _starts(rows, size, every):
            inside = [one for one in rows if one.row.key == key and start <= one.row.at < start + size]
            if inside:
                pane = Pane(key, start, start + size, value([one.row for one in inside]))
                out.append((timed(start + size, inside[0]), pane))
    return in_order(out)


def _starts(rows: Sequence[Placed], size: int, every: int) -> list[int]:
    last = max((one.row.at for one in rows), default=0)
    return [start for start in range(-size, last + size) if start % every == 0]


def first_of_each(rows: Sequence[Placed], same: Callable[[Row], Any], time_to_live: int | None = None) -> list[Any]:
    """Rows whose like did not pass within `time_to_live` before them."""
    out: list[Row] = []
    for one in rows:
        before = [row for row in out if same(row) == same(one.row)]
        if not before or (time_to_live is not None and one.row.at >= before[-1].at + time_to_live):
            out.append(one.row)
    return out


def sliding(rows: Sequence[Placed], size: int, value: Value) -> list[Any]:
    """At each row that enters or leaves, the value of the key's rows of the last `size`."""
    last = rows[-1].row.at if rows else 0
    enters = [(one.place, one, True) for one in rows]
    leaves = [(timed(one.row.at + size, one), one, False) for one in rows if one.row.at + size <= last]
    out = []
    for place, one, is_new in sorted(enters + leaves, key=lambda event: event[0]):
        inside = [
            other.row
            for other in rows
            if other.row.key == one.row.key and other.place <= place and timed(other.row.at + size, other) > place
        ]
        out.append(Change(one.row.key, value(inside) if inside else None, one.row if is_new else None))
    return out


def top(rows: Sequence[Placed], size: int, n: int) -> list[Any]:
    """The keys with most rows of the last `size` at each row that changes them; of two the one with the newer row."""
    out: list[Any] = []
    shown: list[Entry[str, int]] = []
    for number, one in enumerate(rows):
        inside = [(i, other.row) for i, other in enumerate(rows[: number + 1]) if one.row.at - size < other.row.at]
        newest = {row.key: i for i, row in inside}
        counts = {key: sum(row.key == key for _, row in inside) for key in newest}
        best = [Entry(*item) for item in sorted(counts.items(), key=lambda item: (-item[1], -newest[item[0]]))[:n]]
        if best != shown:
            shown = best
            out.append(Ranking(one.row, best))
    return out
