"""Joins and patterns, by trying all pairs and all starts."""

from collections.abc import Callable, Sequence
from typing import Any

from agiledart import Joined, Match
from tests.reference.rows import Placed, Row, in_order, keys_of, timed

Predicate = Callable[[Row], bool]


def window_join(rows: Sequence[Placed], size: int, every: int, how: str) -> list[Any]:
    """All pairs of a key and window, when it closes: by left row, then by right row."""
    out: list[tuple[tuple[int, ...], Any]] = []
    last = max((one.row.at for one in rows), default=0)
    for key in keys_of(rows):
        for start in range(-size, last + 1):
            inside = [one for one in rows if one.row.key == key and start <= one.row.at < start + size]
            if start % every or not inside:
                continue
            lefts: list[Any] = [one.row for one in inside if not one.row.side]
            rights: list[Any] = [one.row for one in inside if one.row.side]
            if not lefts and how == "outer":
                lefts = [None]
            if not rights and how in ("left", "outer"):
                rights = [None]
            place = timed(start + size, inside[0])
            out += [(place, Joined(key, left, right)) for left in lefts for right in rights]
    return in_order(out)


def interval_join(rows: Sequence[Placed], earliest: int, latest: int, how: str) -> list[Any]:
    """Pairs by their later row, then by their earlier one; lonely left rows when their time is over."""
    out: list[tuple[tuple[int, ...], Any]] = []
    for one in rows:
        met = False
        for other in rows:
            if one.row.side or not other.row.side or one.row.key != other.row.key:
                continue
            if earliest <= other.row.at - one.row.at <= latest:
                met = True
                later, earlier = max(one, other), min(one, other)
                out.append(((*later.place, *earlier.place), Joined(one.row.key, one.row, other.row)))
        if how == "left" and not met and not one.row.side:
            out.append((timed(one.row.at + max(latest, 0) + 1, one), Joined(one.row.key, one.row, None)))
    return in_order(out)


def lookup(rows: Sequence[Placed], how: str) -> list[Any]:
    """Each left row with the last right row of its key before it."""
    out = []
    for number, one in enumerate(rows):
        if one.row.side:
            continue
        known = [other.row for other in rows[:number] if other.row.side and other.row.key == one.row.key]
        if known or how == "left":
            out.append(Joined(one.row.key, one.row, known[-1] if known else None))
    return out


def pattern(rows: Sequence[Placed], elements: Sequence[tuple[bool, Predicate]], within: int) -> list[Any]:
    """Try each row as a start. A step of the pattern is (wanted, predicate); (False, …) must not come there."""
    out = []
    for start in rows:
        if elements[0][1](start.row):
            mine = [one for one in rows if one.row.key == start.row.key and one > start]
            found = _match(start, [one for one in mine if one.row.at <= start.row.at + within], elements[1:])
            if found is not None:
                ends_by_time = not elements[-1][0]
                place = timed(start.row.at + within + 1, start) if ends_by_time else (*found[-1].place, *start.place)
                out.append((place, Match(start.row.key, [one.row for one in found])))
    return in_order(out)


def _match(start: Placed, later: Sequence[Placed], elements: Sequence[tuple[bool, Predicate]]) -> list[Placed] | None:
    found, unwanted = [start], []
    left = list(elements)
    while left and not left[0][0]:
        unwanted.append(left.pop(0)[1])
    for one in later:
        if any(predicate(one.row) for predicate in unwanted):
            return None
        if left and left[0][1](one.row):
            found.append(one)
            del left[0]
            unwanted = []
            while left and not left[0][0]:
                unwanted.append(left.pop(0)[1])
            if not left and not unwanted:
                return found
    return found if not left else None
