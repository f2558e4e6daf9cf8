"""A job with much state: a running sum of each of many long keys, its input, and its expected output."""

from pathlib import Path

PER_KEY_BYTES = 430
"""Of an entry, as it is saved; most of it is the key."""

CODE = f"""
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def key_of(reading: Reading) -> str:
    return f"{{reading.key:0{PER_KEY_BYTES - 20}d}}"


def add(so_far: Reading, reading: Reading) -> Reading:
    return Reading(reading.at, reading.key, so_far.value + reading.value)


def build(readings: Source[Reading], report: Sink[Reading], name: str = "heavy") -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    sums = rows.key_by(key_of, returns=str).reduce("sums", add)
    sums.map(lambda change: change.value, name="short").sink("report", report)
    return topology
"""


def write_input(folder: Path, keys: int, rate: int, seconds: int) -> str:
    """Write code and rows: each key once, then so many rows per second with keys drawn evenly. Return the expected output."""
    (folder / "heavy.py").write_text(CODE)
    sums = [0] * keys
    lines: list[str] = []
    expected: list[str] = []
    for number in range(keys + rate * seconds):
        at = 0 if number < keys else (number - keys) * 1_000 // rate
        key = number if number < keys else number * 2_654_435_761 % 4_294_967_291 % keys
        sums[key] += number % 101
        lines.append(f"{at},{key},{number % 101}\n")
        expected.append(f"{at},{key},{sums[key]}\n")
    (folder / "rows.csv").write_text("".join(lines))
    return "".join(expected)
