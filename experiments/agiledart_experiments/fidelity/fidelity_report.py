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
class PanelReport:
    """State of a panel.

    Attributes:
        panel: the panel of the paper.
        state: `computed`, `partly` or `missing`.
        why: the missing parts, and differences of the inputs; empty: none.
        curves: of the results, and beside them.
        source: file of the results; empty: there are none.
        run: its command, seed, scale, and numbers of goals met and missed.
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


def read_results(folders: Sequence[str]) -> tuple[dict[str, tuple[str, dict[str, Any]]], list[str]]:
    """Return the result of each experiment in these folders with its file, and the files that hold none.

    Of several results the one of the published scale counts, then the one whose file has the experiment's name.

    Raises:
        ConfigurationError: a folder does not exist, or a file is not JSON.
    """
    ranked: dict[str, tuple[tuple[bool, bool], str, dict[str, Any]]] = {}
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
            if name not in ranked or rank > ranked[name][0]:
                ranked[name] = rank, str(path), document
    return {name: (file, document) for name, (_, file, document) in ranked.items()}, unread


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


def _report_of(panel: Panel, results: dict[str, tuple[str, dict[str, Any]]]) -> PanelReport:
    if not panel.experiment:
        return PanelReport(panel, MISSING, panel.lacks)
    if panel.experiment not in results and panel.also in results:
        why = f"only by the simulator; on agents: agiledart experiment run {panel.experiment} --scale paper -o json"
        of_simulator = _report_of(replace(panel, experiment=panel.also, also=""), results)
        return replace(of_simulator, panel=panel, state=min(of_simulator.state, PARTLY, key=STATES.index), why=why)
    if panel.experiment not in results:
        command = f"agiledart experiment run {panel.experiment} --scale paper -o json"
        return PanelReport(panel, MISSING, f"no result here; make one: {command}")
    source, document = results[panel.experiment]
    rows = [row for row in document["results"] if isinstance(row, dict) and _belongs(panel, row)]
    parameters = document.get("parameters", {})
    rows += [parameters] if any(name in parameters for name in panel.y) else []
    curves = tuple(_curves(panel, rows))
    if panel.also in results:
        others = [row for row in results[panel.also][1]["results"] if isinstance(row, dict) and _belongs(panel, row)]
        curves += tuple(replace(c, origin=SIMULATED) for c in _curves(panel, others) if c.origin == "here")
    shown = {curve.label.partition(",")[0] for curve in curves if curve.origin == "here"}
    lacking = [name for name in panel.y if name not in shown]
    run = {
        "command": document.get("command"),
        "seed": document.get("seed"),
        "scale": document.get("scale"),
        "load": document.get("load"),
        "goals_met": sum(bool(goal["met"]) for goal in document.get("goals", ())),
        "goals_missed": [goal["what"] for goal in document.get("goals", ()) if not goal["met"]],
    }
    if not shown:
        why = f"the result has no {', '.join(lacking)}: run it again"
        return PanelReport(panel, MISSING, why, (), source, run)
    reasons = [panel.lacks] if panel.lacks else []
    reasons += [f"the result has no {', '.join(lacking)}"] if lacking else []
    reasons += ["small scale"] if document.get("scale") != "paper" else []
    state = PARTLY if reasons else COMPUTED
    reasons += [panel.differs] if panel.differs else []
    return PanelReport(panel, state, "; ".join(reasons), curves, source, run)


def _belongs(panel: Panel, row: Row) -> bool:
    return all(row.get(column) in values for column, values in panel.where.items())


def _curves(panel: Panel, rows: list[Row]) -> Iterable[Curve]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(f"{row.get(column)}" for column in panel.series), []).append(row)
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
