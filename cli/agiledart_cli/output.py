"""Output of the command line: messages on stderr, tables or JSON on stdout, numbers with units."""

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
    """Add the option `-o table|json` to a command."""
    return click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="How to print."
    )(command)


def print_message(text: str = "", *, colour: str | None = None) -> None:
    """Print a message on stderr. A colour only emphasises; the text alone is complete."""
    click.echo(paint(harmless_lines(text), colour, sys.stderr), err=True)


def paint(text: str, colour: str | None, stream: Any = None) -> str:
    """Return `text` in a colour when the stream is a terminal with colours, else unchanged."""
    if colour is None or not wants_colour(stream or sys.stdout):
        return text
    return click.style(text, fg=colour)


def wants_colour(stream: Any) -> bool:
    """Return whether a stream is a terminal with colours; `NO_COLOR` and `TERM=dumb` turn them off."""
    if stream is None:  # closed by the caller
        return False
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def print_json(body: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json_text(body, indent=2))


def json_text(body: Any, indent: int | None = None) -> str:
    """Return JSON text: letters of all languages unchanged, control characters escaped as `\\u…`."""
    text = json.dumps(body, ensure_ascii=False, indent=indent)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print aligned columns on stdout; the columns named in `right` are right-aligned."""
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
    """Return a count with thousands separators; empty for None."""
    return "" if value is None else f"{value:,.0f}"


def per_second(value: float | None) -> str:
    """Return a rate per second; empty for None."""
    return "" if value is None else f"{value:,.0f}/s"


def milliseconds(value: float | None) -> str:
    """Return a latency given in milliseconds with suitable digits and unit; empty for None."""
    if value is None:
        return ""
    if value >= 10_000:
        return f"{value / 1000:,.0f} s"
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def duration(seconds: float) -> str:
    """Return a time span as text: `0.41 s`, `12 s`, `3 min 5 s`, `2 h 14 min`, `3 d 4 h`."""
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
    """Return a wall time (milliseconds since 1970) in the local time zone: `11-23 19:03:29`."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at_ms / 1_000, UTC).astimezone().strftime("%m-%d %H:%M:%S")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: `1 agent`, `5 agents`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
