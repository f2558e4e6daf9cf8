"""View of `agiledart top`: lines that fit a terminal of any width."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agiledart_cli.output import BAD, WATCH, count, duration, milliseconds, plural
from agiledart_cli.top.top_sample import LIVE_STATES, ApplicationLine, NodeLine, StepLine, TopSnapshot
from agiledart_cli.verbs.application_view import COLOURS, where
from agiledart_kernel.text import harmless

SORTS = {"n": "name", "i": "in", "o": "out", "b": "busy", "u": "queue"}
"""Key → order of the steps."""

KEYS = "sort by n name  i in  o out  b busy  u queue     q quit"


@dataclass(frozen=True)
class TableColumn:
    """One column. Columns with `give` are shortened when a line is too long, the highest `give` first."""

    head: str
    right: bool = False
    give: int = 0


@dataclass(frozen=True)
class TextLine:
    """A line of text with one colour."""

    text: str
    colour: str | None = None
    is_head: bool = False


def picture(snapshot: TopSnapshot, width: int, height: int | None, sort: str) -> list[TextLine]:
    """Return the whole screen: at most `height` lines (None: as many as needed) of at most `width` characters."""
    live = sum(line.state in LIVE_STATES for line in snapshot.applications)
    title = (
        f"agiledart top   {snapshot.agent}   {plural(snapshot.known, 'node')}   {plural(live, 'application')} running"
    )
    free_lines = 10_000 if height is None else max(3, height - 7)
    nodes, applications, steps = _shares(
        free_lines, len(snapshot.nodes), len(snapshot.applications), len(snapshot.steps) if snapshot.steps else 1
    )
    lines = [TextLine(title[:width], is_head=True)]
    lines += _nodes(snapshot.nodes, width, nodes)
    lines.append(TextLine(""))
    lines += _applications(snapshot.applications, width, applications)
    if snapshot.steps:
        lines.append(TextLine(""))
        lines += _steps(sorted_steps(snapshot.steps, sort), width, steps)
    return lines if height is None else lines[:height]


_SORT_FIGURES: Final[Mapping[str, Callable[[StepLine], float | None]]] = {
    "in": lambda line: line.in_rate,
    "out": lambda line: line.out_rate,
    "busy": lambda line: line.busy,
    "queue": lambda line: line.queue,
}


def sorted_steps(steps: Sequence[StepLine], sort: str) -> list[StepLine]:
    """Return the steps in the requested order, greatest first; by name: applications, with steps in the order of the graph."""
    if sort == "name":
        return sorted(steps, key=lambda line: line.application)
    figure = _SORT_FIGURES[sort]
    return sorted(steps, key=lambda line: -(figure(line) or 0))


def _shares(free_lines: int, *wanted: int) -> list[int]:
    """Return the number of lines of each table: what it needs, or its fair share and the lines that others leave."""
    given = [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for place, index in enumerate(order):
        given[index] = max(1, min(wanted[index], free_lines // (len(order) - place)))
        free_lines = max(0, free_lines - given[index])
    return given


def _nodes(lines: Sequence[NodeLine], width: int, limit: int) -> list[TextLine]:
    columns = [TableColumn("NODE", give=1), TableColumn("INSTANCES", True), TableColumn("CORES", True), TableColumn("RTT", True),
               TableColumn("RUNS", give=2)]  # fmt: skip
    rows, colours = [], []
    for line in sorted(lines, key=lambda line: line.name):
        name = f"{line.name} (asked)" if line.is_asked else line.name
        if not line.answers:
            rows.append([name, "", "", milliseconds(line.rtt_ms), "does not answer"])
            colours.append(BAD)
            continue
        runs = ", ".join(line.applications) + (" (leaving)" if line.is_leaving else "")
        busy = "" if line.busy is None else f"{line.busy:.2f}"
        rows.append([name, f"{line.instances} of {line.capacity}", busy, milliseconds(line.rtt_ms), runs])
        colours.append(WATCH if line.is_leaving else "")
    return _table(columns, rows, colours, width, limit)


def _applications(lines: Sequence[ApplicationLine], width: int, limit: int) -> list[TextLine]:
    if not lines:
        return [TextLine("No applications yet. Submit one: agiledart submit FILE:NAME")]
    overloaded = any(line.shed or line.spooled for line in lines)
    columns = [TableColumn("APPLICATION", give=1), TableColumn("STATE"), TableColumn("FOR", True), TableColumn("IN/S", True),
               TableColumn("OUT/S", True), TableColumn("READ", True), TableColumn("LATE", True),
               *([TableColumn("SHED", True), TableColumn("SPOOL", True)] if overloaded else []), TableColumn("P99", True),
               TableColumn("", give=2)]  # fmt: skip
    rows, colours = [], []
    for line in lines:
        for_text = "" if line.since_seconds is None else duration(round(line.since_seconds) or 0).replace(".00", "")
        note = f"no figures from {', '.join(line.silent_nodes)}" if line.silent_nodes else line.reason
        rows.append(
            [
                *(f"{line.name} v{line.version}", line.state, for_text, _rate(line.in_rate), _rate(line.out_rate)),
                *(count(line.records_in), count(line.late)),
                *((count(line.shed), count(line.spooled)) if overloaded else ()),
                *(milliseconds(line.p99_ms), note),
            ]
        )
        colours.append(BAD if line.state == "failed" else WATCH if line.silent_nodes else COLOURS.get(line.state, ""))
    return _table(columns, rows, colours, width, limit)


def _steps(lines: Sequence[StepLine], width: int, limit: int) -> list[TextLine]:
    several = len({line.application: True for line in lines}) > 1
    raised = any(line.errors for line in lines)
    scored = any(line.score is not None for line in lines)
    columns = [TableColumn("STEP", give=1), *([TableColumn("APPLICATION", give=3)] if several else []), TableColumn("×", True),
               TableColumn("IN/S", True), TableColumn("OUT/S", True), TableColumn("BUSY", True), TableColumn("QUEUE", True),
               *([TableColumn("SCORE", True)] if scored else []), *([TableColumn("ERRORS", True)] if raised else []),
               TableColumn("WHERE", give=2)]  # fmt: skip
    rows, colours = [], []
    for line in lines:
        busy = "" if line.busy is None else f"{line.busy * 100:.0f} %"
        queue = "" if line.queue is None else count(line.queue)
        rows.append(
            [
                *(line.step, *([line.application] if several else [])),
                *(line.times, _rate(line.in_rate), _rate(line.out_rate), busy, queue),
                *(["" if line.score is None else f"{line.score:.2f}"] if scored else []),
                *([count(line.errors)] if raised else []),
                where(list(Counter(line.nodes).elements())),
            ]
        )
        colours.append(WATCH if line.blocked else "")
    return _table(columns, rows, colours, width, limit)


def _rate(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if 0 < value < 10 else count(value)


def _table(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], colours: Sequence[str], width: int, limit: int
) -> list[TextLine]:
    """Return aligned columns with gaps of two; at most `limit` rows, and a line with the number of omitted rows."""
    shown = rows if len(rows) <= limit else rows[: max(1, limit - 1)]
    widths = [
        max(len(column.head), *(len(row[i]) for row in shown), 0) if shown else len(column.head)
        for i, column in enumerate(columns)
    ]
    _shrink(widths, columns, width)
    lines = [TextLine(_joined([column.head for column in columns], widths, columns, width), is_head=True)]
    lines += [
        TextLine(_joined(row, widths, columns, width), colour or None)
        for row, colour in zip(shown, colours, strict=False)
    ]
    if len(shown) < len(rows) and limit > 1:
        lines.append(TextLine(f" … {len(rows) - len(shown)} more"))
    return lines


def _shrink(widths: list[int], columns: Sequence[TableColumn], width: int) -> None:
    """Shorten the columns with `give` to fit the width, each to 8 characters at least."""
    over = 1 + sum(widths) + 2 * (len(widths) - 1) - width
    for place in sorted((i for i, column in enumerate(columns) if column.give), key=lambda i: -columns[i].give):
        taken = max(0, min(over, widths[place] - 8))
        widths[place] -= taken
        over -= taken


def _joined(cells: Sequence[str], widths: Sequence[int], columns: Sequence[TableColumn], width: int) -> str:
    parts = []
    for cell, free_lines, column in zip(cells, widths, columns, strict=True):
        shown = harmless(cell)
        text = shown if len(shown) <= free_lines else shown[: free_lines - 1] + "…"
        parts.append(text.rjust(free_lines) if column.right else text.ljust(free_lines))
    return (" " + "  ".join(parts)).rstrip()[:width]
