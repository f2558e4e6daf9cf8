"""What a user reads: talk on stderr, tables or JSON on stdout, numbers with units."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from agiledart_kernel.text import harmless_lines

F = TypeVar("F", bound=Callable[..., Any])

GOOD, WATCH, BAD = "green", "yellow", "red"


def output_option(command: F) -> F:
    """`-o table|json`."""
    return click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
    )(command)


def print_message(text: str = "", *, colour: str | None = None) -> None:
    """Talk, on stderr. Colour only underlines what the words say."""
    click.echo(paint(harmless_lines(text), colour, sys.stderr), err=True)


def paint(text: str, colour: str | None, stream: Any = None) -> str:
    """`text` in a colour when the stream is a terminal that wants colours."""
    if colour is None or not wants_colour(stream or sys.stdout):
        return text
    return click.style(text, fg=colour)


def wants_colour(stream: Any) -> bool:
    """Whether a stream is a terminal whose user has not asked for plain text."""
    if stream is None:  # closed by the caller
        return False
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def print_json(body: Any) -> None:
    """One JSON document on stdout, for programs and for people."""
    click.echo(json_text(body, indent=2))


def json_text(body: Any, indent: int | None = None) -> str:
    """JSON for people and programs: letters of all languages as they are, what could harm a terminal as `\\u…`."""
    text = json.dumps(body, ensure_ascii=False, indent=indent)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Plain aligned columns on stdout; the columns named in `right` hold numbers."""
    table = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(_width(row[column]) for row in table) for column in range(len(headers))]
    for row in table:
        parts = []
        for head, cell, width in zip(headers, row, widths, strict=True):
            space = " " * (width - _width(cell))
            parts.append(space + cell if head in right else cell + space)
        click.echo(" " + "  ".join(parts).rstrip())


def _width(text: str) -> int:
    return len(click.unstyle(text))


def count(value: float | None) -> str:
    """A count with thousands separators."""
    return "" if value is None else f"{value:,.0f}"


def per_second(value: float | None) -> str:
    """A rate."""
    return "" if value is None else f"{value:,.0f}/s"


def milliseconds(value: float | None) -> str:
    """A latency in milliseconds with sensible digits."""
    if value is None:
        return ""
    if value >= 10_000:
        return f"{value / 1000:,.0f} s"
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def duration(seconds: float) -> str:
    """A span as people say it: `0.41 s`, `12 s`, `3 min 5 s`, `2 h 14 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def when(at_ms: int) -> str:
    """A wall time for people, in their own zone: `11-23 19:03:29`."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone().strftime("%m-%d %H:%M:%S")


def plural(number: int, noun: str) -> str:
    """`1 agent`, `5 agents`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
