"""Windows that listen for late rows, by replaying the rows in the order in which the source read them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agiledart import Pane
from tests.reference.rows import Row, in_order


class Arrival(NamedTuple):
    """A row with the time and number under which it went on; `late_by` 0 for one in time."""

    at: int
    number: int
    late_by: int
    row: Row


def arrivals(rows: Sequence[Row], tolerance: int, lateness: int) -> tuple[list[Arrival], list[Row]]:
    """(rows that go on, in order; rows that are too late, as they came): a source, the slow way."""
    complete: list[int] = []  # before each row: up to which time the source was complete
    newest = None
    for row in rows:
        newest_before = newest
        newest = row.at if newest is None else max(newest, row.at)
        complete.append(-1_000_000 if newest_before is None else newest_before - tolerance)
    going, too_late = [], []
    for number, (row, limit) in enumerate(zip(rows, complete, strict=True)):
        if limit - row.at > lateness:
            too_late.append(row)
        else:
            # A late row stands behind all that was complete before it: its number decides among those of one time.
            going.append((max(row.at, limit), row.at < limit, number, max(0, limit - row.at), row))
    # Rows of one time: those sorted in leave when time gets there, late ones when they come.
    going.sort(key=lambda one: _leaves(one, rows, tolerance))
    return [Arrival(at, number, late_by, row) for number, (at, _, _, late_by, row) in enumerate(going)], too_late


def _leaves(one: Any, rows: Sequence[Row], tolerance: int) -> tuple[int, int, int, int]:
    """(time, row at whose reading it leaves, late ones first, its own number)."""
    at, is_late, number, _, _ = one
    if is_late:
        return at, number, 0, number
    newest = -1_000_000
    for reader, row in enumerate(rows):
        newest = max(newest, row.at)
        if reader >= number and newest - tolerance >= at:
            return at, reader, 1, number
    return at, len(rows), 1, number


def late_panes(
    rows: Sequence[Row],
    tolerance: int,
    allowed: int,
    most_allowed: int,
    size: int,
    every: int,
    value: Callable[[list[Row]], Any],
) -> tuple[list[Any], list[Row]]:
    """(panes and renewed panes in order, rows for which all windows were too old)."""
    going, _ = arrivals(rows, tolerance, most_allowed)
    out: list[tuple[tuple[int, ...], Any]] = []
    too_late: list[Row] = []
    inside: dict[tuple[int, str], list[Row]] = {}
    first: dict[tuple[int, str], Arrival] = {}
    for one in going:
        taken = False
        for start in range(-size, one.row.at + 1):
            end = start + size
            if start % every or not start <= one.row.at < end or end + allowed <= one.at:
                continue
            taken = True
            window = end, one.row.key
            inside.setdefault(window, []).append(one.row)
            if end <= one.at:
                pane = Pane(one.row.key, start, end, value(inside[window]))
                out.append(((one.at, 1, one.number, end), pane))
            else:
                first.setdefault(window, one)
        if not taken:
            too_late.append(one.row)
    for (end, key), one in first.items():
        mine = [
            other.row for other in going if other.row.key == key and end - size <= other.row.at < end and other.at < end
        ]
        out.append(((end, 0, one.number), Pane(key, end - size, end, value(mine))))
    return in_order(out), too_late
