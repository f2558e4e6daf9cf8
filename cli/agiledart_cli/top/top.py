"""`agiledart top`: show the activity of the mesh, live on a terminal, or once."""

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

import click

from agiledart_cli.options import agent_options
from agiledart_cli.output import output_option, paint, print_json, wants_colour
from agiledart_cli.signals import unwound_by_signals
from agiledart_cli.top.top_sample import TopSnapshot, compare, take_sample
from agiledart_cli.top.top_view import KEYS, SORTS, TextLine, picture
from agiledart_cli.verb_connection import connect
from agiledart_control.control_client import ControlClient

FIRST_SECONDS = 1.0
"""Time between the first two samples: each executor reports twice in it."""

RESIZE_SECONDS = 0.25
PIPE_WIDTH = 120
"""Width of a snapshot when the output is not a terminal."""

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@click.command(short_help="Show applications, steps and nodes, live.")
@click.option("--once", is_flag=True, help="Print one snapshot and exit; the default without a terminal.")
@click.option(
    "--interval",
    type=click.FloatRange(0.5, 60.0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two samples.",
)
@click.option(
    "--sort", type=click.Choice(list(SORTS.values())), default="name", show_default=True, help="Order of the steps."
)
@agent_options
@output_option
def top(once: bool, interval: float, sort: str, agent: str | None, identity: str | None, output: str) -> None:
    """Show applications, steps and nodes, live, like the Unix tool of that name. Rates are rows a second.

    \b
    Example:
      agiledart top
      agiledart top --once --sort busy
      agiledart top -o json

    Keys: n i o b u sort the steps by name, rows in, rows out, busy and queue; q quits. SCORE is the health score of a stage
    with autoscaling (1: just enough); `2 → 5` means that it should have five instances. CORES is the CPU use of the instances
    on a node; BUSY is the share of a core that each instance of a stage uses, at the stage's first step. Yellow steps are
    blocked by the steps after them.
    """
    with connect(agent, identity) as client:
        if output == "json" or once or not sys.stdout.isatty():
            before = take_sample(client)
            time.sleep(FIRST_SECONDS)
            snapshot = compare(before, take_sample(client), time.time())
            if output == "json":
                print_json(asdict(snapshot))
            else:
                width = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
                for line in picture(snapshot, width, None, sort):
                    click.echo(_painted(line))
            return
        _live(client, interval, sort)


def _live(client: ControlClient, interval: float, sort: str) -> None:
    """Show the live table until q or Ctrl-C; restores the terminal."""
    before = take_sample(client)
    snapshot = compare(None, before, time.time())
    with unwound_by_signals(), contextlib.suppress(KeyboardInterrupt), _screen():
        due = time.monotonic() + FIRST_SECONDS
        while True:
            size = shutil.get_terminal_size()
            _draw(snapshot, size, sort)
            while (left := due - time.monotonic()) > 0 and shutil.get_terminal_size() == size:
                key = _key(min(left, RESIZE_SECONDS))
                if key in ("q", "Q", "\x03", "\x04"):
                    return
                if key in SORTS:
                    sort = SORTS[key]
                    break
                if key == " ":
                    due = time.monotonic()
            else:
                if left <= 0:
                    now = take_sample(client)
                    snapshot, before = compare(before, now, time.time()), now
                    due = time.monotonic() + interval


def _draw(snapshot: TopSnapshot, size: os.terminal_size, sort: str) -> None:
    """Overwrite the previous picture; each line is cleared to its end, which avoids flicker."""
    lines = picture(snapshot, size.columns, size.lines - 1, sort)
    text = "\x1b[H" + "".join(f"{_painted(line)}\x1b[K\r\n" for line in lines[: size.lines - 1]) + "\x1b[J"
    sys.stdout.write(text + f"\x1b[{size.lines};1H {KEYS}"[: size.columns + 12])
    sys.stdout.flush()


def _painted(line: TextLine) -> str:
    if line.is_head and wants_colour(sys.stdout):
        return click.style(line.text, bold=True)
    return paint(line.text, line.colour)


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    """Switch to the terminal's alternate screen without cursor; keys arrive at once and are not echoed."""
    before = None
    if sys.stdin.isatty():
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key(seconds: float) -> str:
    """Return a key that was pressed within this time, else an empty text."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return ""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    if not ready:
        return ""
    return os.read(sys.stdin.fileno(), 64).decode("utf-8", "ignore")[:1] or "q"
