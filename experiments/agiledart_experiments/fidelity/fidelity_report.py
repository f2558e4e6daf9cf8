"""Fidelity of stored results: for each panel its state, its curves, and the values beside it with their origins."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from agiledart_experiments.fidelity.panel import Panel
from agiledart_experiments.fidelity.panels import AGILEDART, PANELS
from agiledart_experiments.report import ORIGINS, Row
from agiledart_kernel.errors import ConfigurationError

STATES = MISSING, PARTLY, COMPUTED = "missing", "partly", "computed"
SIMULATED = "simulator"
REAL = " --real"
"""Ending of the name of an experiment whose result comes from agents of a machine."""

LARGEST_FILE = 64 << 20
"""Bytes of a result file that are read at most."""

Point = tuple[Any, Any]
"""Value of x, a number or a word, and of y; the two ends of a street on a map."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a panel.

    Attributes:
        label: column and series.
        points: x and y, in the order of the rows.
        origin: `here`, or where a value to compare with comes from: `printed`, `model`, `other run`, `simulator`.
    """

    label: str
    points: tuple[Point, ...]
    origin: str = "here"


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A file that `experiment run -o json` printed.

    Attributes:
        file: its path.
        document: its content.
    """

    file: str
    document: dict[str, Any]

    @property
    def rows(self) -> list[Row]:
        """Return its rows."""
        return [row for row in self.document["results"] if isinstance(row, dict)]

    @property
    def scale(self) -> str:
        """Return the scale of the run."""
        return str(self.document.get("scale"))

    def run(self) -> dict[str, Any]:
        """Return command, seed, scale and load of the run, and its goals."""
        goals = self.document.get("goals", ())
        return {
            **{name: self.document.get(name) for name in ("command", "seed", "scale", "load")},
            "goals_met": sum(bool(goal["met"]) for goal in goals),
            "goals_missed": [goal["what"] for goal in goals if not goal["met"]],
        }


Results = dict[str, list[StoredResult]]
"""Experiment → its results, the best first."""


@dataclass(frozen=True, slots=True)
class PanelReport:
    """State of a panel.

    Attributes:
        panel: the panel of the paper.
        state: `computed`, `partly` or `missing`.
        why: the missing parts, and differences of the inputs; empty: none.
        curves: of the results, and beside them.
        source: file of the results; empty: there are none.
        run: its command, seed, scale, and numbers of goals met and missed; `parts`: of other files with lines of the panel.
    """

    panel: Panel
    state: str
    why: str
    curves: tuple[Curve, ...] = ()
    source: str = ""
    run: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FidelityReport:
    """States of all panels.

    Attributes:
        panels: in the order of the papers.
        unread: files that hold no result of an experiment.
    """

    panels: tuple[PanelReport, ...]
    unread: tuple[str, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return the number of AgileDART's panels in each state."""
        states = [entry.state for entry in self.panels if entry.panel in AGILEDART]
        other_inputs = sum(e.state == COMPUTED and bool(e.panel.differs) for e in self.panels if e.panel in AGILEDART)
        counts = {state: states.count(state) for state in (COMPUTED, PARTLY, MISSING)}
        return {"panels": len(states), **counts, "computed_on_other_inputs": other_inputs}

    def document(self) -> dict[str, Any]:
        """Return the report as a document."""
        return {"format": "agiledart-fidelity/1", "counts": self.counts(), "panels": [_entry(p) for p in self.panels]}


def read_results(folders: Sequence[str]) -> tuple[Results, list[str]]:
    """Return the results of each experiment in these folders with their files, and the files that hold none.

    Those of the published scale come first, then the one whose file has the experiment's name.

    Raises:
        ConfigurationError: a folder does not exist, or a file is not JSON.
    """
    ranked: dict[str, list[tuple[tuple[bool, bool], StoredResult]]] = {}
    unread = []
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigurationError(f"{folder}: there is no such folder; name folders with results of -o json.")
        for path in sorted(Path(folder).glob("*.json")):
            document = _read(path)
            if document is None:
                unread.append(str(path))
                continue
            name = document["experiment"] + (REAL if document.get("real") else "")
            rank = document.get("scale") == "paper", path.stem == name.replace(REAL, "-real")
            ranked.setdefault(name, []).append((rank, StoredResult(str(path), document)))
    return {
        name: [stored for _, stored in sorted(entries, key=lambda entry: entry[0], reverse=True)]
        for name, entries in ranked.items()
    }, unread


def _read(path: Path) -> dict[str, Any] | None:
    if path.stat().st_size > LARGEST_FILE:
        return None
    try:
        document = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"{path}: it is not JSON: {error}") from None
    has_rows = isinstance(document, dict) and isinstance(document.get("results"), list) and "experiment" in document
    return document if has_rows else None


def fidelity_of(folders: Sequence[str], panels: Iterable[Panel] = PANELS) -> FidelityReport:
    """Return the report on the results in these folders; see `read_results` for errors."""
    results, unread = read_results(folders)
    return FidelityReport(tuple(_report_of(panel, results) for panel in panels), tuple(unread))


def _report_of(panel: Panel, results: Results) -> PanelReport:
    if not panel.experiment:
        return PanelReport(panel, MISSING, panel.lacks)
    if panel.experiment not in results and panel.also in results:
        why = f"only by the simulator; on agents: agiledart experiment run {panel.experiment} --scale paper -o json"
        of_simulator = _report_of(replace(panel, experiment=panel.also, also=""), results)
        return replace(of_simulator, panel=panel, state=min(of_simulator.state, PARTLY, key=STATES.index), why=why)
    if panel.experiment not in results:
        command = f"agiledart experiment run {panel.experiment} --scale paper -o json"
        return PanelReport(panel, MISSING, f"no result here; make one: {command}")
    rows, parts = _rows_and_parts(panel, results[panel.experiment])
    curves = tuple(_curves(panel, rows))
    if panel.also in results:
        others = [row for row in results[panel.also][0].rows if _belongs(panel, row)]
        curves += tuple(replace(c, origin=SIMULATED) for c in _curves(panel, others) if c.origin == "here")
    shown = {curve.label.partition(",")[0] for curve in curves if curve.origin == "here"}
    lacking = [name for name in panel.y if name not in shown]
    first = parts[0]
    if not shown:
        why = f"the result has no {', '.join(lacking)}: run it again"
        return PanelReport(panel, MISSING, why, (), first.file, first.run())
    reasons = [panel.lacks] if panel.lacks else []
    reasons += [f"the result has no {', '.join(lacking)}"] if lacking else []
    reasons += [
        f"no row has {column} {value}"
        for column, values in panel.needs.items()
        for value in values
        if all(row.get(column) != value for row in rows)
    ]
    reasons += ["small scale"] if first.scale != "paper" else []
    state = PARTLY if reasons else COMPUTED
    reasons += [panel.differs] if panel.differs else []
    run = first.run() | ({"parts": [part.run() for part in parts[1:]]} if parts[1:] else {})
    return PanelReport(panel, state, "; ".join(reasons), curves, first.file, run)


def _rows_and_parts(panel: Panel, stored: Sequence[StoredResult]) -> tuple[list[Row], list[StoredResult]]:
    """Return the rows of a panel, and the results that they are from.

    The first result with rows of the panel counts. Other results of its scale add the lines that are missing there: a long
    experiment may be run in parts.
    """
    rows: list[Row] = []
    parts: list[StoredResult] = []
    for result in stored:
        if parts and result.scale != parts[0].scale:
            break
        known = {_line(panel, row) for row in rows}
        more = [row for row in result.rows if _belongs(panel, row) and _line(panel, row) not in known]
        if not parts:
            parameters = result.document.get("parameters", {})
            more += [parameters] if any(name in parameters for name in panel.y) else []
        if any(row.get(name) is not None for row in more for name in panel.y):
            rows += more
            parts.append(result)
    return rows, parts or list(stored[:1])


def _line(panel: Panel, row: Row) -> tuple[str, ...]:
    return tuple(f"{row.get(column)}" for column in panel.series)


def _belongs(panel: Panel, row: Row) -> bool:
    return all(row.get(column) in values for column, values in panel.where.items())


def _curves(panel: Panel, rows: list[Row]) -> Iterable[Curve]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_line(panel, row), []).append(row)
    shown: dict[tuple[Point, ...], None] = {}
    for group, members in groups.items():
        for name in panel.y:
            label = ", ".join((name, *group))
            if points := _points(panel, members, name):
                yield Curve(label, points)
            for ending, origin in ORIGINS.items():
                theirs = _points(panel, members, f"{name}_{ending}")
                if theirs and theirs not in shown:
                    shown[theirs] = None
                    yield Curve(label, theirs, origin)


def _points(panel: Panel, rows: list[Row], name: str) -> tuple[Point, ...]:
    """Return the points of a column; a list in a row is a curve of its own: of pairs, or of values at 1, 2, 3 …"""
    points: list[Point] = []
    for row in rows:
        value = row.get(name)
        if isinstance(value, list):
            points += [tuple(v) if isinstance(v, list) else (at, v) for at, v in enumerate(value, 1)]
        elif isinstance(value, int | float) and not isinstance(value, bool) and row.get(panel.x) is not None:
            points.append((row[panel.x], value))
    if panel.sums_of:
        sums = accumulate(y * panel.sums_of for _, y in points)
        points = [(x, round(total, 1)) for (x, _), total in zip(points, sums, strict=True)]
    return tuple(points)


def _entry(entry: PanelReport) -> dict[str, Any]:
    panel = entry.panel
    return {
        "paper": panel.paper,
        "panel": panel.name,
        "shows": panel.shows,
        "state": entry.state,
        "why": entry.why,
        "experiment": panel.experiment or None,
        "evidence": panel.evidence or None,
        "source": entry.source or None,
        "run": entry.run,
        "comparisons": sorted({curve.origin for curve in entry.curves if curve.origin != "here"}),
        "curves": [
            {"label": curve.label, "origin": curve.origin, "points": [list(point) for point in curve.points]}
            for curve in entry.curves
        ],
    }
