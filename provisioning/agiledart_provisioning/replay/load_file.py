"""Loads of users: a CSV file of rates, as Prometheus exports them, and a JSON file of the types that take the rows."""

import csv
from bisect import bisect_right
from collections.abc import Iterable
from math import isfinite

import msgspec

from agiledart_kernel.errors import ConfigurationError
from agiledart_provisioning.plan_file import OfferEntry, TypeEntry, check_offer, check_types, validation_text
from agiledart_provisioning.replay.replay_workload import ReplayWorkload
from agiledart_provisioning.state import MachineOffer, OperatorType
from agiledart_provisioning.upscaling import refuse_oversized

TYPES_FORMAT = "agiledart-provisioning-types/1"
COLUMNS = ("second", "type", "rows_per_s")

MAX_SECONDS = 366 * 24 * 3600
"""Length of a replay: a year."""

MAX_POINTS = 5_000_000
"""Lines of a load file."""


class TypesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Types of a replay, and the machine that a lease brings; `offer.cost` is the price of an hour."""

    format: str
    types: tuple[TypeEntry, ...]
    offer: OfferEntry


def read_types_file(text: bytes) -> tuple[tuple[OperatorType, ...], MachineOffer]:
    """Return the types of a file and its offer. Raises ConfigurationError; the message names the place in the file."""
    try:
        file = msgspec.json.decode(text, type=TypesFile)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigurationError(validation_text(error)) from None
    if file.format != TYPES_FORMAT:
        raise ConfigurationError(f"format: {file.format!r} is not {TYPES_FORMAT!r}")
    check_types(file.types)
    check_offer(file.offer)
    types = tuple(OperatorType(**msgspec.structs.asdict(entry)) for entry in file.types)
    for entry in types:
        refuse_oversized(entry, file.offer.cpu, file.offer.memory)
    return types, MachineOffer(file.offer.cpu, file.offer.memory, file.offer.cost)


class LoadCurve:
    """Rate of one type over time: each given rate holds until the next one."""

    def __init__(self) -> None:
        self._seconds: list[int] = []
        self._rates: list[float] = []

    def add(self, second: int, rate: float) -> bool:
        """Add a point; return False when it is not later than the last one."""
        if self._seconds and second <= self._seconds[-1]:
            return False
        self._seconds.append(second)
        self._rates.append(rate)
        return True

    def at(self, second: int) -> float:
        """Return the rate at a second; 0 before the first point."""
        index = bisect_right(self._seconds, second) - 1
        return self._rates[index] if index >= 0 else 0.0

    @property
    def last_second(self) -> int:
        """Return the second of the last point; 0 without points."""
        return self._seconds[-1] if self._seconds else 0


def read_load(lines: Iterable[str], types: tuple[OperatorType, ...]) -> ReplayWorkload:
    """Return the workload of a load file with the columns `COLUMNS`. The first second becomes 0.

    Raises:
        ConfigurationError: another header, a value that is no number, an unknown type, time that goes back; with the line.
    """
    reader = csv.reader(lines)
    header = next(reader, [])
    if [name.strip() for name in header] != list(COLUMNS):
        raise ConfigurationError(
            f"line 1: the columns are {', '.join(header) or 'none'}; they must be {', '.join(COLUMNS)}"
        )
    curves = {entry.name: LoadCurve() for entry in types}
    first: int | None = None
    for number, fields in enumerate(reader, 2):
        if not fields:
            continue
        if number > MAX_POINTS:
            raise ConfigurationError(f"line {number}: a file has at most {MAX_POINTS:,} lines")
        second, name, rate = _point(fields, number)
        if name not in curves:
            raise ConfigurationError(
                f"line {number}: there is no type {name!r}; the types file has {', '.join(curves)}"
            )
        first = second if first is None else first
        if not 0 <= second - first <= MAX_SECONDS or not curves[name].add(second - first, rate):
            raise ConfigurationError(f"line {number}: second {second} of {name}: time goes back, or exceeds a year")
    if first is None:
        raise ConfigurationError("the load file has no line with a rate")
    end = max(curve.last_second for curve in curves.values()) + 60
    return ReplayWorkload(types, (), {}, (1,), end, lambda name, second: curves[name].at(second))


def _point(fields: list[str], number: int) -> tuple[int, str, float]:
    if len(fields) != len(COLUMNS):
        raise ConfigurationError(f"line {number}: {len(fields)} fields; it must have {len(COLUMNS)}")
    try:
        second, rate = float(fields[0]), float(fields[2])
    except ValueError:
        raise ConfigurationError(
            f"line {number}: {','.join(fields)!r}: second and rows_per_s must be numbers"
        ) from None
    if not isfinite(second) or not isfinite(rate) or rate < 0.0:
        raise ConfigurationError(f"line {number}: rows_per_s = {fields[2]}: must be a number of at least 0")
    return int(second), fields[1].strip(), rate


EXAMPLE_TYPES = {
    "format": TYPES_FORMAT,
    "types": [
        {"name": "parse", "cpu": 660, "memory": 452, "image_mb": 89, "slo_ms": 150},
        {"name": "report", "cpu": 47, "memory": 452, "image_mb": 70, "slo_ms": 13},
    ],
    "offer": {"cpu": 2048, "memory": 4096, "cost": 0.06},
}
"""Types file that `agiledart provision replay --example` writes."""


def example_load() -> str:
    """Return a load file of twelve hours with a peak in the evening."""
    lines = [",".join(COLUMNS)]
    for minute in range(0, 12 * 60, 5):
        peak = 400.0 if 6 * 60 <= minute < 8 * 60 else 40.0
        lines += [f"{minute * 60},parse,{peak:g}", f"{minute * 60},report,{peak / 4:g}"]
    return "\n".join(lines) + "\n"
