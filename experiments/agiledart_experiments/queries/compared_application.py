"""`ComparedApplication`: an application with its input, the input line that causes each result, and what makes results equal."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agiledart_examples.generated_streams import CITY_SENSORS, URBAN_SENSORS
from agiledart_examples.generated_streams import generate as example_lines
from agiledart_examples.taxi_trips import generate as taxi_trips
from agiledart_executor.local_runs.local_run import run_topology

Cells = list[str]

WINDOW_MS: Final = 60_000
URBAN_WINDOWS: Final = 5
"""Windows of urban sensing that a run closes at least, unless all 90,000 sensors report."""

READINGS_PER_WINDOW: Final = 6


@dataclass(frozen=True, slots=True)
class ComparedApplication:
    """An application of figure 9.

    Attributes:
        name: as `--app` takes it.
        target: its builder.
        source, sink: its parameters.
        form: format of its input lines.
        lines: seed, number of lines → input.
        causes: input and results, in order → for each result the index of the line that caused it.
        is_cell: column of a result → whether it holds the name of a cell, which looks like a number.
        is_ordered: whether results have an order; else they are sorted before they are compared.
        last_columns: columns at the end of a result that hold its delay.
        has_metadata: whether the parameter `metadata` names a file of sensors.
        ends: input, results → the results that need no end of the input.
    """

    name: str
    target: str
    source: str
    sink: str
    form: str
    lines: Callable[[int, int], list[str]]
    causes: Callable[[Sequence[str], Sequence[Cells]], list[int]]
    is_cell: Callable[[int], bool] = lambda _: False
    is_ordered: bool = True
    last_columns: int = 0
    has_metadata: bool = False
    ends: Callable[[Sequence[str], list[Cells]], list[Cells]] = lambda _, results: results

    def canonical(self, results: Sequence[Cells], *, has_delay: bool = True) -> list[Cells]:
        """Return results in a form that is equal for engines that write or add numbers in other ways: nine digits, no delay.

        Args:
            results: cells of each line.
            has_delay: the lines end with a delay.
        """
        dropped = self.last_columns if has_delay else 0
        rows = [
            [cell if self.is_cell(place) else _canonical(cell) for place, cell in enumerate(row[: len(row) - dropped])]
            for row in results
        ]
        return rows if self.is_ordered else sorted(rows)

    def reference(self, lines: Sequence[str], metadata: Path, folder: Path) -> list[Cells]:
        """Return the results of the same application in this process."""
        from agiledart import csv, plugin

        module, _, builder = self.target.partition(":")
        given, made = folder / f"{self.name}-input", folder / f"{self.name}-reference.csv"
        given.write_text("\n".join(lines) + "\n")
        made.unlink(missing_ok=True)
        parameters = {
            self.source: csv(str(given)) if self.form == "csv" else plugin("lines", str(given)),
            self.sink: csv(str(made)),
            **({"metadata": str(metadata)} if self.has_metadata else {}),
        }
        run_topology(vars(importlib.import_module(module))[builder](**parameters))
        return self.ends(lines, cells_of(made.read_text()))


def cells_of(text: str) -> list[Cells]:
    """Return the cells of each line; no cell of these applications has quotes."""
    return [line.split(",") for line in text.splitlines()]


def city_metadata(seed: int) -> list[str]:
    """Return the metadata of all sensors of the ETL."""
    return list(example_lines("city-metadata", seed, sensors=CITY_SENSORS))


def _canonical(cell: str) -> str:
    try:
        return f"{float(cell):.9g}"
    except ValueError:
        return cell


# ---- inputs


def _trips(seed: int, count: int) -> list[str]:
    return list(taxi_trips(seed, count))


def _messages(seed: int, count: int) -> list[str]:
    return list(example_lines("city", seed, count, sensors=CITY_SENSORS))


def _readings(seed: int, count: int) -> list[str]:
    sensors = min(URBAN_SENSORS, max(7, count // (READINGS_PER_WINDOW * URBAN_WINDOWS)))
    return list(example_lines("urban", seed, count, sensors=sensors))


# ---- which line caused a result


def _trip_of_result(lines: Sequence[str], results: Sequence[Cells]) -> list[int]:
    """Find the trip of each result by its times; results come in the order of the trips."""
    causes, place = [], -1
    times = [tuple(line.split(",")[2:4]) for line in lines]
    for row in results:
        place = times.index((row[0], row[1]), place + 1)
        causes.append(place)
    return causes


def _message_of_result(lines: Sequence[str], results: Sequence[Cells]) -> list[int]:
    return [int(row[0]) for row in results]


def _reading_of_result(lines: Sequence[str], results: Sequence[Cells]) -> list[int]:
    """Find the first reading after the window of each result."""
    first: dict[int, int] = {}
    for place, line in enumerate(lines):
        first.setdefault(int(line.partition(",")[0]) // WINDOW_MS, place)
    return [first[int(row[2]) // WINDOW_MS + 1] for row in results]


def _closed_windows(lines: Sequence[str], results: list[Cells]) -> list[Cells]:
    last = int(lines[-1].partition(",")[0]) // WINDOW_MS
    return [row for row in results if int(row[2]) // WINDOW_MS < last]


_APPLICATIONS: Final = (
    ComparedApplication(
        "frequent-routes",
        "agiledart_examples.debs2015:frequent_routes",
        "trips",
        "report",
        "csv",
        _trips,
        _trip_of_result,
        is_cell=lambda place: place >= 2,
        last_columns=1,
    ),
    ComparedApplication(
        "profitable-areas",
        "agiledart_examples.debs2015:profitable_areas",
        "trips",
        "report",
        "csv",
        _trips,
        _trip_of_result,
        is_cell=lambda place: place >= 2 and place % 4 == 2,
        last_columns=1,
    ),
    ComparedApplication(
        "etl-city",
        "agiledart_examples.riotbench:etl_city",
        "messages",
        "table",
        "text",
        _messages,
        _message_of_result,
        has_metadata=True,
    ),
    ComparedApplication(
        "urban-sensing",
        "agiledart_examples.urban_sensing:urban_sensing",
        "readings",
        "summaries",
        "csv",
        _readings,
        _reading_of_result,
        is_ordered=False,
        ends=_closed_windows,
    ),
)

APPLICATIONS: Final = {application.name: application for application in _APPLICATIONS}
