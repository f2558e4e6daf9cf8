"""View of the running demo: a live picture on a terminal, else a short line every few seconds, on stderr."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from agiledart_cli.demo.demo_report import FREQUENT, PROFITABLE, QUERIES
from agiledart_cli.output import count, milliseconds, print_message, wants_colour

LINE_SECONDS = 5.0
RATE_SECONDS = 1.0
TAIL_BYTES = 4_096
TOP = 10

LEGEND = f"a + b: {FREQUENT} + {PROFITABLE}; each query reads its own copy of the stream."

Frames = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Picture:
    """Content of the view at one moment.

    Attributes:
        status: query → status body.
        stage_rates: (query, stage) → rows a second that enter it.
        top: query → fields of its last result line.
    """

    status: Frames
    stage_rates: Mapping[tuple[str, str], float]
    top: Mapping[str, list[str]]

    def line(self) -> str:
        """Return the picture as one line."""
        return f"{self.counts()}   {self.latencies()}".rstrip()

    def counts(self) -> str:
        """Return rates and sums of both queries, `a + b`."""
        summaries = [self.status[query].get("summary") or {} for query in QUERIES]
        parts = {
            "trips/s": [self.stage_rates.get((query, "trips"), 0.0) for query in QUERIES],
            "read": [summary.get("records_in", 0) for summary in summaries],
            "outside": [summary.get("outliers", 0) for summary in summaries],
            "late": [summary.get("late", 0) for summary in summaries],
            "results": [results_of(self.status[query]) for query in QUERIES],
        }
        sums = "   ".join(f"{name} {' + '.join(map(count, figures))}" for name, figures in parts.items())
        return f"{self.event_time()}  {sums}"

    def latencies(self) -> str:
        """Return the latencies of results; empty for an input that is not paced."""
        figures = [_latency(self.status[query]) for query in QUERIES]
        return f"result after {' and '.join(figure for figure in figures if figure)}" if any(figures) else ""

    def event_time(self) -> str:
        """Return the event time of the newest result, as time of day."""
        newest = max((fields[1] for fields in self.top.values() if len(fields) > 1), default="")
        return newest[11:] or "--:--:--"


class Rates:
    """Rates in rows a second between two samples of sums; instances report twice a second."""

    def __init__(self) -> None:
        self.stages: dict[tuple[str, str], float] = {}
        self._at = 0.0
        self._sums: dict[tuple[str, str], int] = {}

    def look(self, now: float, status: Frames) -> None:
        """Take a new sample; samples within `RATE_SECONDS` are ignored."""
        if now - self._at < RATE_SECONDS:
            return
        sums: dict[tuple[str, str], int] = {}
        for query, response in status.items():
            steps = (response.get("summary") or {}).get("steps", {})
            for stage in response.get("placement") or {}:
                sums[query, stage] = steps.get(stage.split("+")[0], {}).get("rows_in", 0)
        if self._at:
            span = now - self._at
            self.stages = {key: max(0, rows - self._sums.get(key, 0)) / span for key, rows in sums.items()}
        self._at, self._sums = now, sums


def _latency(status: Mapping[str, Any]) -> str:
    sinks = (status.get("summary") or {}).get("latency_ms", {})
    if not sinks or not (status.get("summary") or {}).get("paced"):
        return ""
    worst = max(sinks.values(), key=lambda figure: figure["p99"])
    return f"{milliseconds(worst['p50'])} (p99 {milliseconds(worst['p99'])})"


def results_of(status: Mapping[str, Any]) -> int:
    """Return how many result lines a query has written so far."""
    return sum((status.get("summary") or {}).get("results", {}).values())


def last_result(path: Path) -> list[str]:
    """Return the fields of the last complete line of a result file; empty without one."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read()
    except OSError:
        return []
    lines = tail[: tail.rfind(b"\n") + 1].splitlines()
    if not lines or (len(lines) == 1 and size > TAIL_BYTES):
        return []
    return lines[-1].decode("utf-8", "replace").split(",")


def routes(fields: list[str]) -> list[str]:
    """Return the ten routes of a result line of the first query as texts."""
    pairs = zip(fields[2:-1:2], fields[3:-1:2], strict=False)
    return ["" if start == "NULL" else f"{start} → {end}" for start, end in pairs]


def areas(fields: list[str]) -> list[str]:
    """Return the ten areas of a result line of the second query as texts."""
    places = []
    for at in range(2, len(fields) - 1, 4):
        cell, empty, median, profitability = fields[at : at + 4]
        if cell == "NULL":
            places.append("")
        else:
            taxis = f"{empty} empty {'taxi' if empty == '1' else 'taxis'}"
            places.append(f"{cell}  ${float(profitability):,.2f}  (${float(median):,.2f}, {taxis})")
    return places


class DemoView:
    """Display of pictures; a context manager that restores the terminal."""

    def __init__(self) -> None:
        self._live: Any = None
        self._last_line = 0.0

    def __enter__(self) -> "DemoView":
        if wants_colour(sys.stderr):
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)
            self._live.__enter__()
        else:
            print_message(LEGEND)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def show(self, picture: Picture) -> None:
        """Draw the picture, or print a line every `LINE_SECONDS`."""
        if self._live is not None:
            self._live.update(drawn(picture, self._live.console.width), refresh=True)
            return
        now = time.monotonic()
        if now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            print_message(f" {picture.line()}")


def drawn(picture: Picture, width: int = 80) -> Any:
    """Return the picture as a rich renderable of at most 80 columns; on a narrower terminal tables omit columns."""
    from rich.console import Group
    from rich.text import Text

    left, right = routes(picture.top[FREQUENT]), areas(picture.top[PROFITABLE])
    tops = {"": ["", *(str(place + 1) for place in range(TOP))]}
    for heading, entries in (("Busiest routes, 30 min", left), ("Most profitable areas, 15 min", right)):
        tops[heading] = [heading.ljust(26), *(entries[place] if place < len(entries) else "" for place in range(TOP))]
    stages: dict[str, list[str]] = {heading: [heading] for heading in ("query", "stage", "where", "in/s", "queue")}
    for query in QUERIES:
        for stage, where in (picture.status[query].get("placement") or {}).items():
            times = f" ×{len(where)}" if len(where) > 1 else ""
            rate = picture.stage_rates.get((query, stage))
            queued = _queued(picture.status[query], stage)
            cells = (query, f"{stage}{times}", " ".join(dict.fromkeys(where)), count(rate), count(queued))
            for column, cell in zip(stages.values(), cells, strict=True):
                column.append(cell)
    return Group(
        *(Text(picture.counts()), Text(picture.latencies()), Text("")),
        *(_table(tops, width, ["Most profitable areas, 15 min"]), Text("")),
        _table(stages, width, ["where", "queue", "in/s", "query"]),
        *(Text(LEGEND, style="dim"), Text("Ctrl-C stops everything", style="dim")),
    )


def _table(columns: Mapping[str, list[str]], width: int, dispensable: list[str]) -> Any:
    """Return a table, headings first; omits the `dispensable` columns in their order while it is too wide."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    gap = 2
    shown = dict(columns)
    for name in dispensable:
        if sum(max(map(cell_len, cells)) + gap for cells in shown.values()) - gap > width:
            del shown[name]
    table = Table.grid(padding=(0, gap))
    for name in shown:
        is_number = name in ("", "in/s", "queue")
        table.add_column(no_wrap=True, justify="right" if is_number else "left", style="" if name else "dim")
    for at, row in enumerate(zip(*shown.values(), strict=True)):
        table.add_row(*(Text(cell, style="bold" if at == 0 else "") for cell in row))
    return table


def _queued(status: Mapping[str, Any], name: str) -> int | None:
    """Return how many rows wait before a stage; None without a report."""
    for stage in status.get("stages", []):
        if stage["name"] == name:
            queues = [row["queued_rows"] for row in stage["instances"] if "queued_rows" in row]
            return sum(queues) if queues else None
    return None
