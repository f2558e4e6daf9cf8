"""Reference answers for the two DEBS 2015 queries, straight from their text and with nothing of AgileDart in it.

`answer(lines)` validates each line, runs both queries over the trips and returns every result row as plain values. It
exists twice: `method="rescan"` looks at the whole window again at every trip and keeps no state that could be wrong;
`"steady"` keeps counters and is fast enough for ten thousand lines. Tests hold the two against each other and both
against rows worked by hand.

Where the text leaves a choice, this is what we read:

* Amounts, medians and profitabilities are exact fractions. Two areas tie when the numbers are equal, not when their
  rounding in binary happens to agree; a value changes when the number changes. Cells come from floats, by the formula
  as printed.
* A line must be UTF-8. It is validated left to right: columns first, then field by field, then the order of its two
  times. A blank line has the wrong number of columns, and so has, to keep readers bounded, one of more than 1 MiB. A
  number is decimal notation, an exponent allowed; it must be finite as a float.
* The newest drop-off, which decides lateness, is that of well-formed lines, outliers of a query included.
* The window of a query moves only at its own trips. First everything leaves that is too old for the drop-off of the
  trip, then the trip counts. A taxi idle for 30 minutes or more is therefore no longer empty when its next trip
  becomes known, and its leaving renews nothing.
* A medallion's last drop-off is that of its last trip in the order of the stream, whatever the pickup times say. With
  it the taxi has left the area where it stood; when it comes back to the same area that area is renewed anyway.
* "Newest first" compares the place of the renewing trips in the stream, not their times. One trip can renew up to
  three areas; only then are two equally new, and the smaller cell id (east, then south) stands first.
* The list of query 1 is ten routes in order; the list of query 2 is ten rows of values. Before the first trip the
  list is empty, so an empty list is no first result; a later change to an empty list is a change, reported as ten
  times NULL.
* strict: an area needs an empty taxi and a recent trip. Negative and zero medians are listed like others.
* zero profit: an area with an empty taxi and no recent trip has median 0 and profitability 0.
"""

import gzip
import re
from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from heapq import nlargest
from math import floor, isfinite
from pathlib import Path
from typing import Literal

Cell = tuple[int, int]
Value = str | int | Fraction
Row = tuple[Value, ...]
"""One result without its delay: text and counts are compared exactly, fractions to 1e-6."""
Method = Literal["rescan", "steady"]

ROUTE_WINDOW = 30 * 60
PROFIT_WINDOW = 15 * 60
EMPTY_WINDOW = 30 * 60
MAX_LINE = 1 << 20
NULL = "NULL"
ZERO = Fraction(0)

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_TIMES, _NUMBERS = (2, 3), (4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16)


@dataclass(frozen=True)
class Trip:
    """A well-formed line that is not late; `at` is its drop-off in seconds of the proleptic calendar."""

    taxi: str
    pickup: str
    dropoff: str
    at: int
    start: tuple[float, float]
    end: tuple[float, float]
    profit: Fraction


@dataclass
class Answers:
    """Answers that the two queries must give for a stream."""

    lines: int = 0
    malformed: Counter[str] = field(default_factory=Counter)
    late: int = 0
    outliers: dict[str, int] = field(default_factory=dict)
    routes: list[Row] = field(default_factory=list)
    areas: list[Row] = field(default_factory=list)


def answer(lines: Iterable[str | bytes], *, zero_profit: bool = False, method: Method = "steady") -> Answers:
    """Both queries over these lines (with or without line ends)."""
    answers = Answers()
    trips = list(admit(lines, answers))
    moves = list(_moves(trips, 1))
    answers.outliers["frequent-routes"] = len(trips) - len(moves)
    answers.routes = list((_routes_rescan if method == "rescan" else _routes_steady)(moves))
    moves = list(_moves(trips, 2))
    answers.outliers["profitable-areas"] = len(trips) - len(moves)
    answers.areas = list((_areas_rescan if method == "rescan" else _areas_steady)(moves, zero_profit))
    return answers


def read_lines(path: Path | str) -> list[bytes]:
    """The lines of a file, plain or gzip, cut at line feeds only."""
    with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
        return list(file)


# --- lines to trips ---------------------------------------------------------------------------------------------------


def admit(lines: Iterable[str | bytes], answers: Answers) -> Iterator[Trip]:
    """The trips of the stream; malformed and late lines are counted in `answers`."""
    newest = 0
    for line in lines:
        answers.lines += 1
        try:
            text = line.decode() if isinstance(line, bytes) else line
        except UnicodeDecodeError:
            answers.malformed["encoding"] += 1
            continue
        fields = text.removesuffix("\n").removesuffix("\r").split(",")
        reason = fault(fields) if len(text) <= MAX_LINE else "columns"
        if reason is not None:
            answers.malformed[reason] += 1
            continue
        at = _time(fields[3])
        assert at is not None
        if at < newest:
            answers.late += 1
            continue
        newest = at
        lon_a, lat_a, lon_b, lat_b = map(float, fields[6:10])
        profit = amount(fields[11]) + amount(fields[14])
        yield Trip(fields[0], fields[2], fields[3], at, (lon_a, lat_a), (lon_b, lat_b), profit)


def fault(fields: Sequence[str]) -> str | None:
    """Why the line is malformed, or None."""
    if len(fields) != 17:
        return "columns"
    for i, text in enumerate(fields):
        if i in _TIMES and _time(text) is None:
            return "time"
        if i in _NUMBERS and not (_NUMBER.fullmatch(text) and isfinite(float(text))):
            return "number"
    pickup, dropoff = _time(fields[2]), _time(fields[3])
    return "order" if pickup is not None and dropoff is not None and dropoff < pickup else None


def _time(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups())
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        return date(year, month, day).toordinal() * 86_400 + hour * 3_600 + minute * 60 + second
    except ValueError:
        return None


def amount(text: str) -> Fraction:
    """The exact value of a number in decimal notation."""
    exponent = text.lower().partition("e")[2]
    # An exponent of four digits is zero or infinite as a float; as a fraction it would fill the memory.
    return Fraction(text) if len(exponent.lstrip("+-")) < 4 else Fraction(float(text))


def cell(place: tuple[float, float], per_500_m: int) -> Cell | None:
    """The cell of a longitude and latitude, None outside; `per_500_m` is 1 for query 1 and 2 for query 2."""
    longitude, latitude = place
    east = (longitude + 74.913585) / (0.005986 / per_500_m) + 0.5
    south = (41.474937 - latitude) / (0.004491556 / per_500_m) + 0.5
    if not (isfinite(east) and isfinite(south)):
        return None
    x, y = floor(east) + 1, floor(south) + 1
    last = 300 * per_500_m
    return (x, y) if 1 <= x <= last and 1 <= y <= last else None


@dataclass(frozen=True)
class Move:
    """A trip between two cells of one grid."""

    trip: Trip
    start: Cell
    end: Cell


def _moves(trips: Iterable[Trip], per_500_m: int) -> Iterator[Move]:
    for trip in trips:
        start, end = cell(trip.start, per_500_m), cell(trip.end, per_500_m)
        if start is not None and end is not None:
            yield Move(trip, start, end)


def _text(place: Cell) -> str:
    return f"{place[0]}.{place[1]}"


# --- query 1 ----------------------------------------------------------------------------------------------------------


def _routes_row(move: Move, top: Sequence[tuple[Cell, Cell]]) -> Row:
    places = [_text(place) for route in top for place in route]
    return (move.trip.pickup, move.trip.dropoff, *places, *[NULL] * (20 - len(places)))


def _routes_rescan(moves: Sequence[Move]) -> Iterator[Row]:
    shown: list[tuple[Cell, Cell]] = []
    times = [move.trip.at for move in moves]
    for n, move in enumerate(moves):
        frequency: Counter[tuple[Cell, Cell]] = Counter()
        newest: dict[tuple[Cell, Cell], int] = {}
        for i in range(bisect_right(times, move.trip.at - ROUTE_WINDOW), n + 1):
            route = moves[i].start, moves[i].end
            frequency[route] += 1
            newest[route] = i
        top = sorted(frequency, key=lambda route: (-frequency[route], -newest[route]))[:10]
        if top != shown:
            shown = top
            yield _routes_row(move, top)


def _routes_steady(moves: Sequence[Move]) -> Iterator[Row]:
    shown: list[tuple[Cell, Cell]] = []
    window: deque[Move] = deque()
    frequency: Counter[tuple[Cell, Cell]] = Counter()
    newest: dict[tuple[Cell, Cell], int] = {}
    classes: dict[int, dict[tuple[Cell, Cell], None]] = {}

    def change(route: tuple[Cell, Cell], by: int) -> None:
        before = frequency[route]
        if before:
            del classes[before][route]
        frequency[route] = before + by
        if before + by:
            classes.setdefault(before + by, {})[route] = None
        else:
            del frequency[route], newest[route]

    for n, move in enumerate(moves):
        while window and window[0].trip.at <= move.trip.at - ROUTE_WINDOW:
            gone = window.popleft()
            change((gone.start, gone.end), -1)
        window.append(move)
        newest[move.start, move.end] = n
        change((move.start, move.end), +1)
        top: list[tuple[Cell, Cell]] = []
        for count in sorted(classes, reverse=True):
            top += nlargest(10 - len(top), classes[count], key=newest.__getitem__)
            if len(top) == 10:
                break
        if top != shown:
            shown = top
            yield _routes_row(move, top)


# --- query 2 ----------------------------------------------------------------------------------------------------------

Area = tuple[Cell, int, Fraction, Fraction]
"""Cell, empty taxis, median profit, profitability."""


def _areas_row(move: Move, top: Sequence[Area]) -> Row:
    values: list[Value] = []
    for place, taxis, middle, worth in top:
        values += (_text(place), taxis, middle, worth)
    return (move.trip.pickup, move.trip.dropoff, *values, *[NULL] * (40 - len(values)))


def median(ordered: Sequence[Fraction]) -> Fraction:
    """The middle one, or the mean of the two middle ones."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _left(moves: Sequence[Move]) -> list[Cell | None]:
    """For each trip the area where its taxi stood empty until this trip became known."""
    left: list[Cell | None] = []
    last: dict[str, Move] = {}
    for move in moves:
        before = last.get(move.trip.taxi)
        stood = before is not None and move.trip.at - before.trip.at < EMPTY_WINDOW
        left.append(before.end if before is not None and stood else None)
        last[move.trip.taxi] = move
    return left


def _areas_rescan(moves: Sequence[Move], zero_profit: bool) -> Iterator[Row]:
    shown: list[Area] = []
    times = [move.trip.at for move in moves]
    left = _left(moves)
    for n, move in enumerate(moves):
        now = move.trip.at
        profits: dict[Cell, list[Fraction]] = {}
        for i in range(bisect_right(times, now - PROFIT_WINDOW), n + 1):
            profits.setdefault(moves[i].start, []).append(moves[i].trip.profit)
        last: dict[str, Cell] = {}
        newest: dict[Cell, int] = {}
        # Nothing older matters: a listed area has an empty taxi, which came less than 30 minutes ago.
        for i in range(bisect_right(times, now - EMPTY_WINDOW), n + 1):
            last[moves[i].trip.taxi] = moves[i].end
            for place in (moves[i].start, moves[i].end, left[i]):
                if place is not None:
                    newest[place] = i
        areas: list[Area] = []
        for place, taxis in Counter(last.values()).items():
            if place in profits:
                middle = median(sorted(profits[place]))
                areas.append((place, taxis, middle, middle / taxis))
            elif zero_profit:
                areas.append((place, taxis, ZERO, ZERO))
        areas.sort(key=lambda area: (-area[3], -newest[area[0]], area[0]))
        if areas[:10] != shown:
            shown = areas[:10]
            yield _areas_row(move, shown)


class _Areas:
    """Counters of query 2 that change with each trip."""

    def __init__(self, zero_profit: bool) -> None:
        self.zero_profit = zero_profit
        self.profits: dict[Cell, list[Fraction]] = {}
        self.recent: deque[Move] = deque()
        self.stands: dict[str, tuple[int, Cell]] = {}
        self.arrivals: deque[Move] = deque()
        self.taxis: Counter[Cell] = Counter()
        self.newest: dict[Cell, int] = {}
        self.touched: dict[Cell, None] = {}
        # Ordered by float first: rounding keeps order, so fractions are compared only where floats agree.
        self.entries: dict[Cell, tuple[float, Fraction, int, int, int, Area]] = {}

    def expire(self, now: int) -> None:
        while self.recent and self.recent[0].trip.at <= now - PROFIT_WINDOW:
            gone = self.recent.popleft()
            self.profits[gone.start].remove(gone.trip.profit)
            self.touched[gone.start] = None
        while self.arrivals and self.arrivals[0].trip.at <= now - EMPTY_WINDOW:
            taxi = self.arrivals.popleft().trip.taxi
            stand = self.stands.get(taxi)
            if stand is not None and stand[0] <= now - EMPTY_WINDOW:
                self.leave(taxi)

    def leave(self, taxi: str) -> Cell:
        _, place = self.stands.pop(taxi)
        self.taxis[place] -= 1
        self.touched[place] = None
        return place

    def take(self, n: int, move: Move) -> None:
        renewed = [move.start, move.end]
        if move.trip.taxi in self.stands:
            renewed.append(self.leave(move.trip.taxi))
        insort(self.profits.setdefault(move.start, []), move.trip.profit)
        self.recent.append(move)
        self.stands[move.trip.taxi] = move.trip.at, move.end
        self.arrivals.append(move)
        self.taxis[move.end] += 1
        for place in renewed:
            self.newest[place] = n
            self.touched[place] = None

    def top(self) -> list[Area]:
        for place in self.touched:
            self.entries.pop(place, None)
            taxis, profits = self.taxis[place], self.profits.get(place)
            if taxis and (profits or self.zero_profit):
                middle = median(profits) if profits else ZERO
                worth = middle / taxis if profits else ZERO
                area = (place, taxis, middle, worth)
                self.entries[place] = float(worth), worth, self.newest[place], -place[0], -place[1], area
        self.touched.clear()
        return [entry[-1] for entry in nlargest(10, self.entries.values())]


def _areas_steady(moves: Sequence[Move], zero_profit: bool) -> Iterator[Row]:
    shown: list[Area] = []
    areas = _Areas(zero_profit)
    for n, move in enumerate(moves):
        areas.expire(move.trip.at)
        areas.take(n, move)
        top = areas.top()
        if top != shown:
            shown = top
            yield _areas_row(move, top)


# --- comparing --------------------------------------------------------------------------------------------------------

_PLAIN = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
_COUNT = re.compile(r"\d+", re.ASCII)


def difference(results: Path | str | Iterable[str], expected: Sequence[Row]) -> str | None:
    """Compare a result file (or its lines) and describe the first fault; None when it is exact.

    The last column is the delay: a plain non-negative number of milliseconds, otherwise not looked at.
    """
    lines = Path(results).read_text("utf-8").splitlines() if isinstance(results, Path | str) else list(results)
    for number, (line, row) in enumerate(zip(lines, expected, strict=False), 1):
        fields = line.rstrip("\r\n").split(",")
        wrong = _wrong_field(fields, row)
        if wrong is not None:
            where = f"line {number} of {len(lines)} ({len(expected)} expected)"
            return f"{where}: {wrong}\n  is:     {line}\n  should: {show(row)}"
    if len(lines) != len(expected):
        extra, which = (
            (lines[len(expected)], "first extra")
            if len(lines) > len(expected)
            else (show(expected[len(lines)]), "first missing")
        )
        return f"{len(lines)} lines, {len(expected)} expected; {which}: {extra}"
    return None


def _wrong_field(fields: Sequence[str], row: Row) -> str | None:
    if len(fields) != len(row) + 1:
        return f"{len(fields)} columns instead of {len(row) + 1}"
    for i, (text, value) in enumerate(zip(fields, row, strict=False), 1):
        if isinstance(value, Fraction):
            good = _PLAIN.fullmatch(text) is not None and abs(Fraction(text) - value) <= Fraction(1, 10**6)
        elif isinstance(value, int):
            good = _COUNT.fullmatch(text) is not None and int(text) == value
        else:
            good = text == value
        if not good:
            return f"column {i} is {text!r} instead of {_show_value(value)!r}"
    return None if _PLAIN.fullmatch(fields[-1]) and float(fields[-1]) >= 0 else f"delay is {fields[-1]!r}"


def _show_value(value: Value) -> str:
    return f"{float(value):.6f}".rstrip("0").rstrip(".") if isinstance(value, Fraction) else str(value)


def show(row: Row) -> str:
    """A row as the line of a result file, without its delay."""
    return ",".join(map(_show_value, row))
