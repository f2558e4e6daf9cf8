"""Nasty streams: `mutate` injects faults into any stream, `small_world` is one where everything collides.

Both draw from a seed. Injected faults are counted, so that a test can require every kind.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

STEP_EAST, STEP_SOUTH = 0.005986, 0.004491556
WEST, NORTH = -74.913585, 41.474937

MALFORMED_NUMBERS = (
    "",
    "NaN",
    "nan",
    "inf",
    "-inf",
    "Infinity",
    "abc",
    "1_000",
    "1e999",
    "0x10",
    "--1",
    "1.2.3",
    ".",
    "$5",
)
MALFORMED_TIMES = (
    *("", "2013-13-01 00:00:00", "2013-02-30 00:00:00", "2013-01-01 24:00:00", "2013-01-01 00:60:00"),
    *(
        "2013-01-01 00:00:61",
        "13-01-01 00:00:00",
        "2013-1-1 0:00:00",
        "2013-01-01 00:00:00.",
        "2013-01-01 00:00:00 CET",
    ),
    *(" 2013-01-01 00:00:00", "0000-01-01 00:00:00", "2013-01", "01.01.2013 00:00:00", "noon"),
)
OUTSIDE = (
    ("0.000000", "0.000000"),
    ("-74.917000", "40.750000"),
    ("-73.977200", "41.478000"),
    ("-73.977200", "0"),
    ("-73.0", "40.1"),
    ("1e308", "1e308"),
    ("-1e308", "-1e308"),
    ("73.977200", "-40.752700"),
)
GAPS = (899, 900, 901, 1_799, 1_800, 1_801, 2_700, 5_400, 90_000)
"""Seconds: just inside, on and just outside both windows, and long enough to empty everything, over midnight too."""
SMALL_AMOUNTS = (
    *(("6.00", "0.00"), ("5.10", "0.90"), ("3.00", "3.00"), ("12.00", "0"), ("10.10", "2.30"), ("12.40", "0.00")),
    *(("4.00", "0.00"), ("0.00", "0.00"), ("-6.00", "0.00"), ("9.00", "0.00")),
)
"""Fare and tip: few different sums, several ways to each."""


@dataclass
class Mutated:
    """The lines (each with its line end) and how often each fault was injected, by `kind` or `kind:reason`."""

    lines: list[bytes] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)


def _shifted(text: str, by: timedelta) -> str:
    return str(datetime.fromisoformat(text) + by)


class _Mutator:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.out = Mutated()
        self.shift = timedelta(0)
        self.last: list[str] = []
        self.alterations: Sequence[Callable[[list[str]], str]] = (
            self.gap, self.outside, self.border, self.half_cell,
            self.split, self.negative, self.same_taxi, self.no_time,
        )  # fmt: skip
        self.additions: Sequence[Callable[[list[str]], str]] = (
            self.late, self.columns, self.number, self.time, self.order, self.blank, self.garbage, self.tie, self.again,
        )  # fmt: skip

    def add(self, fields: Iterable[str]) -> None:
        end = "\r\n" if self.rng.random() < 0.1 else "\n"
        self.out.injected["crlf"] += len(end) - 1
        self.out.lines.append((",".join(fields) + end).encode())

    def take(self, line: str, rate: float) -> None:
        fields = line.strip().split(",")
        fields[2:4] = (_shifted(text, self.shift) for text in fields[2:4])
        if self.rng.random() < rate:
            self.out.injected[self.rng.choice(self.alterations)(fields)] += 1
        if self.last and self.rng.random() < rate:
            # The same second as the line before; the pickup never comes after it.
            fields[3] = self.last[3]
            fields[2] = min(fields[2], fields[3])
            self.out.injected["same second"] += 1
        self.add(fields)
        self.last = fields
        if self.rng.random() < rate:
            self.out.injected[self.rng.choice(self.additions)(list(fields))] += 1

    # Each alteration changes the fields of a trip in place, keeps the stream sorted and well-formed, and says its name.

    def gap(self, fields: list[str]) -> str:
        seconds = self.rng.choice(GAPS)
        previous = self.last[3] if self.last else fields[3]
        by = datetime.fromisoformat(_shifted(previous, timedelta(seconds=seconds))) - datetime.fromisoformat(fields[3])
        if by <= timedelta(0):
            return "gap:none"
        self.shift += by
        fields[2:4] = (_shifted(text, by) for text in fields[2:4])
        return f"gap:{seconds}"

    def outside(self, fields: list[str]) -> str:
        at = self.rng.choice((6, 8))
        fields[at : at + 2] = self.rng.choice(OUTSIDE)
        return "outside"

    def border(self, fields: list[str]) -> str:
        """Exactly on a border between cells, as exactly as text can say it."""
        cell = self.rng.randrange(2, 298)
        fields[self.rng.choice((6, 8))] = f"{WEST + STEP_EAST * (cell + self.rng.choice((0.25, 0.5, 0.75))):.9f}"
        fields[self.rng.choice((7, 9))] = f"{NORTH - STEP_SOUTH * (cell + self.rng.choice((0.25, 0.5, 0.75))):.9f}"
        return "border"

    def half_cell(self, fields: list[str]) -> str:
        """Inside the grid of one query and outside that of the other: their edges are a quarter of 500 m apart."""
        far = self.rng.choice((-0.3, -0.4, 299.6, 299.7))
        fields[self.rng.choice((6, 8))] = f"{WEST + STEP_EAST * far:.6f}"
        return "half cell"

    def split(self, fields: list[str]) -> str:
        """The same profit in several ways, among them some whose binary sums differ in the last bit."""
        fields[11], fields[14] = self.rng.choice(
            (("10.10", "2.30"), ("12.40", "0.00"), ("12.30", "0.10"), ("6.2", "6.2"))
        )
        return "split"

    def negative(self, fields: list[str]) -> str:
        fields[11], fields[14] = self.rng.choice(
            (("-2.50", "0.00"), ("-52.00", "1.00"), ("0", "0"), ("+3.00", "-3.00"))
        )
        return "negative"

    def same_taxi(self, fields: list[str]) -> str:
        if self.last:
            fields[0] = self.last[0]
        return "same taxi"

    def no_time(self, fields: list[str]) -> str:
        fields[2], fields[4] = fields[3], "0"
        return "no time"

    # Each addition writes one more line after this trip and says its name.

    def late(self, fields: list[str]) -> str:
        by = timedelta(seconds=-self.rng.choice((1, 60, 1_800, 100_000)))
        fields[2:4] = (_shifted(text, by) for text in fields[2:4])
        self.add(fields)
        return "late"

    def columns(self, fields: list[str]) -> str:
        self.add(self.rng.choice((fields[:-1], [*fields, ""], fields[:1], fields * 2)))
        return "malformed:columns"

    def number(self, fields: list[str]) -> str:
        fields[self.rng.choice((4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16))] = self.rng.choice(MALFORMED_NUMBERS)
        self.add(fields)
        return "malformed:number"

    def time(self, fields: list[str]) -> str:
        fields[self.rng.choice((2, 3))] = self.rng.choice(MALFORMED_TIMES)
        if self.rng.random() < 0.3:  # two faults: the one further left counts
            fields[self.rng.choice((5, 11))] = "x"
        self.add(fields)
        return "malformed:time"

    def order(self, fields: list[str]) -> str:
        # Both in the future: a line that is ignored altogether must not move the time either.
        fields[2], fields[3] = (
            _shifted(fields[3], timedelta(seconds=5_001)),
            _shifted(fields[3], timedelta(seconds=5_000)),
        )
        self.add(fields)
        return "malformed:order"

    def blank(self, fields: list[str]) -> str:
        self.add([""])
        return "malformed:columns"

    def garbage(self, fields: list[str]) -> str:
        line = bytes(b for b in self.rng.randbytes(40) if b not in b'\n\r,"')
        self.out.lines.append(line + b"\n")
        try:
            line.decode()
        except UnicodeDecodeError:
            return "malformed:encoding"
        return "malformed:columns"

    def tie(self, fields: list[str]) -> str:
        """Another taxi made the same trip."""
        fields[0] = f"{self.rng.getrandbits(128):032X}"
        self.add(fields)
        return "tie"

    def again(self, fields: list[str]) -> str:
        """The same line once more."""
        self.add(fields)
        return "again"


def mutate(lines: Iterable[str | bytes], seed: int, rate: float = 0.1) -> Mutated:
    """A well-formed sorted stream with faults; `rate` is the share of trips altered, and again of lines added."""
    mutator = _Mutator(seed)
    for line in lines:
        mutator.take(line.decode() if isinstance(line, bytes) else line, rate)
    return mutator.out


def small_world(seed: int, count: int, taxis: int = 25, places: int = 9) -> list[str]:
    """A sorted stream with few taxis, places, amounts and times: ties, returns and empty windows are the rule."""
    rng = random.Random(seed)
    now = datetime(2013, 1, 1, 0, 0)  # noqa: DTZ001  local time, as in the data
    cells = [(150 + rng.randrange(4), 150 + rng.randrange(4)) for _ in range(places)]
    lines = []
    for _ in range(count):
        now += timedelta(seconds=rng.choice(GAPS) if rng.random() < 0.03 else rng.choice((0, 0, 0, 1, 20, 60, 60, 150)))
        pickup = now - timedelta(seconds=rng.choice((0, 60, 600, 4_000)))
        (ax, ay), (bx, by) = rng.choice(cells), rng.choice(cells)
        # Offsets of up to half a cell of 500 m, so that query 2 separates places that query 1 does not.
        a_lon, b_lon = (WEST + STEP_EAST * (x - 1 + rng.choice((-0.2, 0.0, 0.3))) for x in (ax, bx))
        a_lat, b_lat = (NORTH - STEP_SOUTH * (y - 1 + rng.choice((0.0, 0.0, 0.3))) for y in (ay, by))
        fare, tip = rng.choice(SMALL_AMOUNTS)
        taxi = f"{rng.randrange(taxis):032X}"
        lines.append(
            f"{taxi},{taxi},{pickup},{now},{int((now - pickup).total_seconds())},1.00,"
            f"{a_lon:.6f},{a_lat:.6f},{b_lon:.6f},{b_lat:.6f},CSH,{fare},0.50,0.50,{tip},0.00,13.00"
        )
    return lines
