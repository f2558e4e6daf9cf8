"""Messages of a command that takes long: after three seconds it says what the application waits for, by `status`."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from agiledart_cli.output import print_message
from agiledart_cli.verb_connection import connect
from agiledart_cli.verbs.application_view import waiting_text
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.text import harmless_document
from agiledart_node.wire.commands import Nodes, Status

FIRST_SECONDS: Final = 3.0
AGAIN_SECONDS: Final = 5.0

MAX_APPLICATIONS: Final = 8
"""Most applications of a node that are looked at."""


@contextmanager
def waits_reported(
    agent: str | None, identity: str | None, names: Callable[[ControlClient], list[str]]
) -> Iterator[None]:
    """Say on stderr what applications wait for while the body runs, from three seconds on; each text once.

    Args:
        agent, identity: as for the command itself; the question goes over a connection of its own.
        names: returns the names of the applications.
    """
    done = threading.Event()
    thread = threading.Thread(target=_report, args=(done, agent, identity, names), name="waits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def of_application(name: str) -> Callable[[ControlClient], list[str]]:
    """Return a function that names this application."""
    return lambda _: [name]


def of_node(node: str) -> Callable[[ControlClient], list[str]]:
    """Return a function that names the applications on a node."""

    def names(client: ControlClient) -> list[str]:
        rows: list[dict[str, Any]] = client.ask(Nodes())["nodes"]
        return [name for row in rows if row["name"] == node for name in row.get("applications", ())]

    return names


def _report(
    done: threading.Event, agent: str | None, identity: str | None, names: Callable[[ControlClient], list[str]]
) -> None:
    printed: set[str] = set()
    pause = FIRST_SECONDS
    while not done.wait(pause):
        pause = AGAIN_SECONDS
        # The command itself reports an agent that does not answer.
        with suppress(AgileDartError, OSError), connect(agent, identity) as client:
            for name in names(client)[:MAX_APPLICATIONS]:
                for row in harmless_document(client.ask(Status(name))).get("waiting", ()):
                    if row["text"] not in printed and not done.is_set():
                        printed.add(row["text"])
                        print_message(f"  {waiting_text(row)}")
