"""Output of the command line: messages on stderr, tables or JSON on stdout, numbers with units."""

import json
import os
import shutil
import sys
import textwrap
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


MIN_COLUMN = 8
"""Width to which a terminal's table shortens a column, at least."""

MIN_WRAPPED = 10
"""Width to which it narrows a column whose cells go on in the next line, at least."""


def terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None when it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_line(text: str, more: str) -> None:
    """Print a line on stdout; `more` follows in a line of its own where a terminal is too narrow for both."""
    terminal = terminal_width()
    is_narrow = terminal is not None and _width(text + more) > terminal
    click.echo(f"{text}\n {more.strip()}" if is_narrow and more.strip() else text + more)


def print_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    right: Sequence[str] = (),
    *,
    cuts: Sequence[int] = (),
    wraps: Sequence[int] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print aligned columns on stdout; on a terminal they fit its width, in a pipe they are whole.

    Args:
        headers: titles of the columns.
        rows: the cells.
        right: titles of the columns that are right-aligned.
        cuts: numbers of the columns that are shortened where a terminal is narrow, the first one first.
        wraps: numbers of the columns that go on in the next line instead.
        notes: texts below the rows, one each.
    """
    table = [list(headers), *([str(cell) for cell in row] for row in rows)]
    widths = [max(_width(row[column]) for row in table) for column in range(len(headers))]
    terminal = terminal_width()
    if terminal is not None:
        _fit(widths, cuts, wraps, terminal)
    for number, row in enumerate(table):
        cells = [
            _wrapped(cell, width) if column in wraps else [_cut(cell, width)]
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for line in range(max(map(len, cells))):
            parts = []
            for head, texts, width in zip(headers, cells, widths, strict=True):
                cell = texts[line] if line < len(texts) else ""
                space = " " * (width - _width(cell))
                parts.append(space + cell if head in right else cell + space)
            click.echo(" " + "  ".join(parts).rstrip())
        if number and notes:
            note = notes[number - 1]
            lines = [note] if terminal is None else textwrap.wrap(note, terminal - len(_INDENT))
            click.echo("\n".join(_INDENT + line for line in lines))


_INDENT = " " * 6


def _fit(widths: list[int], cuts: Sequence[int], wraps: Sequence[int], terminal: int) -> None:
    """Narrow columns until the table fits a terminal, or none can be narrower."""
    over = 1 + sum(widths) + 2 * (len(widths) - 1) - terminal
    while over > 0 and wraps and (widest := max(wraps, key=lambda column: widths[column])) is not None:
        if widths[widest] <= MIN_WRAPPED:
            break
        widths[widest] -= 1
        over -= 1
    for column in cuts:
        less = max(0, min(over, widths[column] - MIN_COLUMN))
        widths[column] -= less
        over -= less


def _cut(cell: str, width: int) -> str:
    plain = click.unstyle(cell)
    return cell if len(plain) <= width else cell.replace(plain, f"{plain[: width - 1].rstrip()}…")


def _wrapped(cell: str, width: int) -> list[str]:
    """Return a cell in lines of a width; a coloured text keeps its colour when it fits."""
    plain = click.unstyle(cell)
    return [cell] if len(plain) <= width else textwrap.wrap(plain, width) or [""]


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
