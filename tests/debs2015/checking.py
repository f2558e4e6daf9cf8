"""Runs a shipped query over lines and holds file and counts against the reference."""

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from agiledart import csv
from agiledart_examples.debs2015 import frequent_routes, profitable_areas
from agiledart_executor.local_runs.local_run import run_topology
from tests.oracle.debs2015 import Answers, answer, difference

Query = Literal["frequent-routes", "profitable-areas"]
QUERIES: tuple[Query, ...] = ("frequent-routes", "profitable-areas")


def write_lines(path: Path, lines: Sequence[str | bytes]) -> Path:
    """A gzip file of these lines; text gets line feeds, bytes are written as they are."""
    data = b"".join(line if isinstance(line, bytes) else line.encode() + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data, 1))
    return path


def check(
    query: Query,
    source: Path,
    folder: Path,
    expected: Answers,
    *,
    zero_profit: bool = False,
    parallelism: int = 1,
    schedule_seed: int | None = None,
) -> None:
    """Run the query in this process on a file; raise AssertionError at the first thing that is not exact."""
    results = folder / f"{query}.csv"
    trips, report = csv(str(source)), csv(str(results))
    if query == "frequent-routes":
        topology = frequent_routes(trips, report)
    else:
        topology = profitable_areas(trips, report, zero_profit=zero_profit)
    summary = run_topology(topology, parallelism=parallelism, schedule_seed=schedule_seed).summary
    rows = expected.routes if query == "frequent-routes" else expected.areas
    wrong = difference(results, rows)
    case = f"{query} zero_profit={zero_profit} parallelism={parallelism} schedule_seed={schedule_seed}"
    assert wrong is None, f"{case}: {wrong}"
    counted = (summary.records_in, dict(summary.malformed), summary.late, summary.outliers, summary.results)
    correct = (expected.lines, dict(sorted(expected.malformed.items())), expected.late, expected.outliers[query])
    assert counted[:4] == correct, case
    assert list(counted[4].values()) == [len(rows)], case


def check_both(
    lines: Sequence[str | bytes], folder: Path, *, parallelism: int = 1, schedule_seed: int | None = None
) -> Answers:
    """Both queries, the second in both variants, over the same lines; returns what was expected (strict)."""
    source = write_lines(folder / "trips.csv.gz", lines)
    strict, zero = answer(lines), answer(lines, zero_profit=True)
    check("frequent-routes", source, folder, strict, parallelism=parallelism, schedule_seed=schedule_seed)
    for expected, zero_profit in ((strict, False), (zero, True)):
        check(
            "profitable-areas",
            source,
            folder,
            expected,
            zero_profit=zero_profit,
            parallelism=parallelism,
            schedule_seed=schedule_seed,
        )
    return strict
