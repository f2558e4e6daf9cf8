"""Rates of the decoders, before and after a change: records per second of CPU time, for each format of files, and pyarrow's own.

    python -m benchmarks.doors --base FOLDER [--rounds 9] [--only csv] [-o results/doors.json]

FOLDER is a checkout of before (`git worktree add FOLDER COMMIT`). Each round measures both in processes of their own, one after the
other, in turn first: other work of the machine falls on both. A ratio is that of one round; the median of all counts. Goal:
none below 0.95. `bare` is the rate of pyarrow's own CSV reader with the same types, which is the best columnar loop.
"""

import argparse
import csv
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

_ROWS: Final = 40_000
_RECORDS_AT_ONCE: Final = 1_000
_BEGIN: Final = datetime(2026, 1, 1)  # noqa: DTZ001  rows' times have no zone
_MINIMUM_SECONDS: Final = 0.4
_GOAL: Final = 0.95


class DoorRow(NamedTuple):
    """A typical reading."""

    at: datetime
    room: str
    celsius: float
    number: int


class DoorNumbers(NamedTuple):
    """A reading without times."""

    room: str
    celsius: float
    number: int
    share: float


class DoorOptional(NamedTuple):
    """A reading with pauses."""

    at: datetime
    room: str | None
    celsius: float | None
    number: int


class SenmlRow(NamedTuple):
    """A measurement."""

    name: str
    time: datetime
    value: float


class Door(NamedTuple):
    """One way in: the file it reads, the type of its rows, and whether columns are asked for."""

    kind: str
    make: Callable[[], str]
    row_type: Any
    columns: bool = False


def _values() -> Iterator[tuple[datetime, str, float, int]]:
    random_numbers = random.Random(7)
    for number in range(_ROWS):
        at = _BEGIN + timedelta(seconds=number // 4)
        yield at, f"room {number % 50}", round(random_numbers.uniform(-20, 40), 2), random_numbers.randrange(10**6)


def _csv(*, header: bool = False, quoted: bool = False, empty_cells: bool = False, texts: str = "") -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL)
    if header:
        writer.writerow(["at", "room", "celsius", "number"])
    for index, (at, room, celsius, number) in enumerate(_values()):
        is_empty = empty_cells and index % 3 == 0
        writer.writerow([at.isoformat(" "), "" if is_empty else room + texts, "" if is_empty else celsius, number])
    return text.getvalue()


def _numbers() -> str:
    return "".join(f"{room},{celsius},{number},{number / 7:.6f}\n" for _, room, celsius, number in _values())


def _objects(*, zone: str = "Z", number_time: bool = False) -> Iterator[dict[str, Any]]:
    for at, room, celsius, number in _values():
        time_value = int((at - datetime(1970, 1, 1)).total_seconds() * 1_000) if number_time else at.isoformat() + zone  # noqa: DTZ001
        yield {"at": time_value, "room": room, "celsius": celsius, "number": number}


def _json(**options: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in _objects(**options))


def _arrays() -> str:
    rows = list(_objects())
    return "".join(json.dumps(rows[start : start + 20]) + "\n" for start in range(0, len(rows), 20))


def _senml() -> str:
    return "".join(
        json.dumps([{"bn": room + ":", "bt": 1.7e9 + number, "n": "t", "v": celsius}, {"n": "h", "v": 5.0}]) + "\n"
        for _, room, celsius, number in _values()
    )


DOORS: Final = {
    "csv rows": Door("csv", _csv, DoorRow),
    "csv rows with header": Door("csv", lambda: _csv(header=True), DoorRow),
    "csv rows without times": Door("csv", _numbers, DoorNumbers),
    "csv rows with pauses": Door("csv", lambda: _csv(empty_cells=True), DoorOptional),
    "csv rows quoted": Door("csv", lambda: _csv(quoted=True), DoorRow),
    "csv rows not ASCII": Door("csv", lambda: _csv(texts="ü"), DoorRow),
    "csv dicts": Door("csv", lambda: _csv(header=True), dict[str, Any]),
    "csv columns": Door("csv", _csv, DoorRow, columns=True),
    "csv columns without times": Door("csv", _numbers, DoorNumbers, columns=True),
    "csv columns with pauses": Door("csv", lambda: _csv(empty_cells=True), DoorOptional, columns=True),
    "csv columns not ASCII": Door("csv", lambda: _csv(texts="ü"), DoorRow, columns=True),
    "jsonl": Door("jsonl", _json, DoorRow),
    "jsonl with offsets": Door("jsonl", lambda: _json(zone="+02:00"), DoorRow),
    "jsonl with numbers as times": Door("jsonl", lambda: _json(number_time=True), DoorRow),
    "jsonl dicts": Door("jsonl", _json, dict[str, Any]),
    "jsonl arrays": Door("jsonl", _arrays, DoorRow),
    "senml": Door("jsonl", _senml, SenmlRow),
    "lines": Door("lines", _csv, str),
}


def _rate(door: Door, name: str, path: str) -> float:
    """Return the records per second of one door."""
    from agiledart_connectors.opening import open_source
    from agiledart_dataflow.plan.connectors import parse_connector

    options = "?format=senml" if name == "senml" else ""
    connector = parse_connector(f"{door.kind}:{path}{options}")
    records, began = -1, 0.0
    while records < 0 or time.process_time() - began < _MINIMUM_SECONDS:
        reader = open_source(connector, door.row_type, columns=door.columns)
        malformed = lines = 0
        while not (reading := reader.read(_RECORDS_AT_ONCE, 0)).exhausted:
            lines += reading.lines
            malformed += sum(reading.malformed.values())
        reader.close()
        if malformed:
            raise SystemExit(f"{name}: {malformed} malformed")
        if records < 0:  # the first pass imports and compiles
            records, began = 0, time.process_time()
        else:
            records += lines
    return records / (time.process_time() - began)


def _bare_rate(path: str, columns: list[tuple[str, Any]]) -> float:
    """Return the records per second of pyarrow alone."""
    import pyarrow.csv as pacsv

    pacsv.read_csv(path)  # the first call imports
    records, began = 0, time.process_time()
    while time.process_time() - began < _MINIMUM_SECONDS:
        table = pacsv.read_csv(
            path,
            read_options=pacsv.ReadOptions(column_names=[name for name, _ in columns], use_threads=False),
            convert_options=pacsv.ConvertOptions(column_types=dict(columns)),
        )
        records += table.num_rows
    return records / (time.process_time() - began)


def measure(only: str) -> dict[str, float]:
    """Return door → records per second."""
    import pyarrow as pa

    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, door in DOORS.items():
            if not name.startswith(only):
                continue
            path = f"{folder}/{name.replace(' ', '-')}"
            Path(path).write_text(door.make())
            rates[name] = _rate(door, name, path)
            if name in ("csv columns", "csv columns without times"):
                types = (pa.timestamp("s"), pa.string(), pa.float64(), pa.int64())
                if name != "csv columns":
                    types = (pa.string(), pa.float64(), pa.int64(), pa.float64())
                rates[f"bare {name}"] = _bare_rate(path, [(f"c{i}", kind) for i, kind in enumerate(types)])
    return rates


def _measured(root: Path, only: str) -> dict[str, float]:
    """Return the rates of a checkout, measured in a process of its own."""
    roots = [
        str(path) for path in sorted(root.iterdir()) if path.is_dir() and list(path.glob("*agiledart*/__init__.py"))
    ]
    roots += [str(root / "api"), str(root)]
    done = subprocess.run(
        [sys.executable, __file__, "--measure", "--only", only],
        env={**os.environ, "PYTHONPATH": ":".join(roots)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{root}: {done.stderr[-2_000:]}")
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def compare(base: Path, rounds: int, only: str) -> dict[str, Any]:
    """Return the rates and ratios of both checkouts, round by round."""
    here = Path(__file__).resolve().parents[1]
    before: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    for number in range(rounds):
        pairs = [(base, before), (here, after)]
        for root, rates in pairs if number % 2 == 0 else reversed(pairs):
            for name, rate in _measured(root, only).items():
                rates.setdefault(name, []).append(round(rate))
    doors = {
        name: {
            "before": before[name],
            "after": after[name],
            "ratio": round(statistics.median(b / a for a, b in zip(before[name], after[name], strict=True)), 3),
        }
        for name in after
        if name in before
    }
    columns = {
        name: round(statistics.median(a / b for a, b in zip(after[name], after[f"bare {name}"], strict=True)), 3)
        for name in after
        if f"bare {name}" in after
    }
    return {"rounds": rounds, "load": os.getloadavg(), "doors": doors, "columns_beside_bare": columns}


def main() -> None:
    """Measure, or compare with a checkout of before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, help="checkout of before")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="doors whose names begin so")
    parser.add_argument("--measure", action="store_true", help="this checkout alone, as JSON")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    if given.measure or given.base is None:
        print(json.dumps(measure(given.only)))
        return
    result = compare(given.base.resolve(), given.rounds, given.only)
    for name, door in result["doors"].items():
        median = statistics.median(door["after"])
        print(f"{name:32} {median:>12,.0f}/s {door['ratio']:>7.2f}{'' if door['ratio'] >= _GOAL else '  slower'}")
    for name, ratio in result["columns_beside_bare"].items():
        print(f"{name:32} {ratio:>7.2f} of pyarrow alone")
    if given.output is not None:
        given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
