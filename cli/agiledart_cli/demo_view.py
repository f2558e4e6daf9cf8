"""What the demo shows while it runs: a live picture on a terminal, else a short line every few seconds, on stderr."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from agiledart_cli.demo_report import FREQUENT, PROFITABLE, QUERIES
from agiledart_cli.output import count, milliseconds, say, wants_colour

LINE_SECONDS = 5.0
TAIL_BYTES = 4_096
TOP = 10

Frames = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Picture:
    """Everything that is shown at one moment.

    Attributes:
        status: query → status body.
        rate: trips read a second since the picture before.
        top: query → fields of its last result line.
    """

    status: Frames
    rate: float
    top: Mapping[str, list[str]]

    def line(self) -> str:
        """The picture in one line."""
        summary = self.status[FREQUENT].get("summary") or {}
        results = " + ".join(count(results_of(self.status[query])) for query in QUERIES)
        figures = " ".join(_latency(self.status[query]) for query in QUERIES)
        return (
            f"{self.event_time()}  {self.rate:,.0f} trips/s   read {count(summary.get('records_in', 0))}"
            f"   outside the grid {count(summary.get('outliers', 0))}   late {count(summary.get('late', 0))}"
            f"   results {results}   {figures}".rstrip()
        )

    def event_time(self) -> str:
        """Time of day of the newest result, in the data's own time."""
        newest = max((fields[1] for fields in self.top.values() if len(fields) > 1), default="")
        return newest[11:] or "--:--:--"


def _latency(status: Mapping[str, Any]) -> str:
    sinks = (status.get("summary") or {}).get("latency_ms", {})
    if not sinks or not (status.get("summary") or {}).get("paced"):
        return ""
    worst = max(sinks.values(), key=lambda figure: figure["p99"])
    return f"result after {milliseconds(worst['p50'])} (p99 {milliseconds(worst['p99'])})"


def results_of(status: Mapping[str, Any]) -> int:
    """Result lines that a query has written so far."""
    return sum((status.get("summary") or {}).get("results", {}).values())


def last_result(path: Path) -> list[str]:
    """The fields of the last whole line of a result file; empty when there is none yet."""
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
    """The ten routes of a result line of the first query, for people."""
    pairs = zip(fields[2:-1:2], fields[3:-1:2], strict=False)
    return ["" if start == "NULL" else f"{start} → {end}" for start, end in pairs]


def areas(fields: list[str]) -> list[str]:
    """The ten areas of a result line of the second query, for people."""
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
    """Shows pictures. A context manager, so that the terminal is put back as it was."""

    def __init__(self) -> None:
        self._live: Any = None
        self._last_line = 0.0

    def __enter__(self) -> "DemoView":
        if wants_colour(sys.stderr):
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def show(self, picture: Picture) -> None:
        """Draw, or say a line when it is time for one."""
        if self._live is not None:
            self._live.update(drawn(picture), refresh=True)
            return
        now = time.monotonic()
        if now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            say(f" {picture.line()}")


def drawn(picture: Picture) -> Any:
    """The picture as a rich renderable of at most 80 columns."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    tops = Table.grid(padding=(0, 2))
    tops.add_column(justify="right", style="dim")
    tops.add_column(min_width=26, no_wrap=True)
    tops.add_column(no_wrap=True)
    tops.add_row("", Text("Busiest routes, 30 min", style="bold"), Text("Most profitable areas, 15 min", style="bold"))
    left, right = routes(picture.top[FREQUENT]), areas(picture.top[PROFITABLE])
    for place in range(TOP):
        first = left[place] if place < len(left) else ""
        second = right[place] if place < len(right) else ""
        tops.add_row(str(place + 1), first, second)
    stages = Table.grid(padding=(0, 2))
    for _ in range(3):
        stages.add_column(no_wrap=True)
    stages.add_row(Text("query", style="bold"), Text("stage", style="bold"), Text("where", style="bold"))
    for query in QUERIES:
        for stage, where in (picture.status[query].get("placement") or {}).items():
            times = f" ×{len(where)}" if len(where) > 1 else ""
            stages.add_row(query, f"{stage}{times}", " ".join(dict.fromkeys(where)))
    return Group(Text(picture.line()), Text(""), tops, Text(""), stages, Text("Ctrl-C stops everything", style="dim"))
