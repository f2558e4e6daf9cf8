"""Repeated requests about one application: its end, the lines of its code, the rows that leave a step."""

import time
from collections.abc import Iterator
from typing import Any, Final, Protocol

from agiledart_node.wire.commands import Command, Logs, Status, Tap

FINAL_STATES: Final = ("finished", "failed", "stopped")

END_POLL_SECONDS: Final = 0.3
LOG_POLL_SECONDS: Final = 0.5
TAP_POLL_SECONDS: Final = 0.4

MAX_LOG_ANSWERS: Final = 32
"""Greatest number of responses to requests for retained lines; an agent's retained lines need fewer."""


class Ask(Protocol):
    """Request to an agent, as `ControlClient.ask`."""

    def __call__(self, command: Command, /) -> Any: ...


def wait_for_end(ask: Ask, name: str, timeout: float | None) -> Any:
    """Return the status of an application after its end, or after `timeout` seconds."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        response = ask(Status(name))
        if response["state"] in FINAL_STATES or (deadline is not None and time.monotonic() >= deadline):
            return response
        time.sleep(END_POLL_SECONDS)


def log_responses(ask: Ask, name: str, *, follow: bool) -> Iterator[Any]:
    """Yield responses with the lines that the code of an application has printed.

    With `follow` until the application ends; otherwise until all retained lines are there, or the code prints faster than they are
    read. The last response has no lines unless it is the `MAX_LOG_ANSWERS`th.
    """
    after: dict[str, int] = {}
    answers = 0
    while True:
        response = ask(Logs(name, after))
        yield response
        after, answers = response["after"], answers + 1
        if not response["lines"]:
            if not follow or response["state"] in FINAL_STATES:
                return
            time.sleep(LOG_POLL_SECONDS)
        elif not follow and answers >= MAX_LOG_ANSWERS:
            return


def tap_responses(ask: Ask, name: str, step: str) -> Iterator[Any]:
    """Yield responses with samples of the rows that leave a step; the last one says that the application has ended."""
    after: dict[str, int] = {}
    while True:
        response = ask(Tap(name, step, after))
        yield response
        if response["state"] in FINAL_STATES:
            return
        after = response["after"]
        time.sleep(TAP_POLL_SECONDS)
