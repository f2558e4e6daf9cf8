"""`agiledart web`: show the mesh in a browser of this machine."""

import contextlib
import select
import sys
import time
import webbrowser
from collections.abc import Callable
from pathlib import Path

import click

from agiledart_cli.options import agent_options
from agiledart_cli.output import output_option, print_json, print_message
from agiledart_cli.signals import unwound_by_signals
from agiledart_cli.verb_connection import connect
from agiledart_cli.web.mesh_watcher import MeshWatcher
from agiledart_cli.web.page_requests import PageRequests
from agiledart_cli.web.page_server import PageServer, serving
from agiledart_cli.web.page_submission import PageSubmissions
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import ConfigurationError

_LOOK_SECONDS = 0.5


@click.command(short_help="Show the mesh in a browser of this machine.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="Port of the page; 0: any free one."
)
@click.option(
    "--write",
    is_flag=True,
    help="Permit the page to stop applications, and to submit files of this folder; else it only reads.",
)
@click.option("--no-open", is_flag=True, help="Print the address, and open no browser.")
@agent_options
@output_option
def web(port: int, write: bool, no_open: bool, agent: str | None, identity: str | None, output: str) -> None:
    """Show the mesh in a browser of this machine, until Ctrl-C.

    \b
    Example:
      agiledart web
      agiledart web --no-open --port 8800
      agiledart web --agent pi7.example:7946 --identity @reader.token

    The page listens on this machine only and asks one agent, as the other commands do. The printed address works once; Enter
    prints another one. From a machine without a browser, forward the port:  ssh -L 8800:127.0.0.1:8800 pi7
    Nothing is asked while no page is open.
    """
    with connect(agent, identity):
        pass  # a wrong agent or token is said here, not on the page

    def connected() -> ControlClient:
        return connect(agent, identity)

    requests = PageRequests(connected, PageSubmissions(agent, identity, Path.cwd()) if write else None)
    serve(connected, requests, port, opens_browser=not no_open, as_json=output == "json")


def serve(
    connected: Callable[[], ControlClient], requests: PageRequests, port: int, *, opens_browser: bool, as_json: bool
) -> None:
    """Serve the page until Ctrl-C."""
    try:
        server = PageServer(port, MeshWatcher(connected), requests, time.monotonic)
    except OSError as error:
        raise ConfigurationError(
            f"Port {port} of this machine cannot be used ({(error.strerror or str(error)).lower()}). "
            "Omit --port for a free one."
        ) from None
    with unwound_by_signals(), contextlib.suppress(KeyboardInterrupt), serving(server):
        _show(server, opens_browser, as_json)
        while True:
            if _enter_was_pressed():
                _show(server, False, as_json)


def _show(server: PageServer, opens_browser: bool, as_json: bool) -> None:
    address = server.address
    if as_json:
        print_json({"address": address})
    else:
        click.echo(address)
    sys.stdout.flush()
    if opens_browser and webbrowser.open(address):
        print_message("Your browser shows the page. Enter prints another address, Ctrl-C ends it.")
    else:
        print_message(
            "Open this address in a browser of this machine; it works once. Enter prints another one, Ctrl-C ends it."
        )


def _enter_was_pressed() -> bool:
    """Wait for a while. Return whether Enter was pressed in this time."""
    if not sys.stdin.isatty():
        time.sleep(_LOOK_SECONDS)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], _LOOK_SECONDS)
    if not ready:
        return False
    if not sys.stdin.readline():
        time.sleep(_LOOK_SECONDS)
        return False
    return True
