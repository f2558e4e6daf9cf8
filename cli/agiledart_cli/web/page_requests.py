"""Requests of the page beside its stream of events: output, samples of rows, explanations, stop and submit."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from agiledart_cli.failure_costs import with_costs
from agiledart_cli.web.page_submission import PageSubmissions
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import NoAgentError
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_node.wire.checkpoint_commands import Checkpoints
from agiledart_node.wire.commands import Command, ExplainRecovery, ExplainScaling, Logs, Stop, Tap

STOP_SECONDS = 600.0
"""Longest silence of an agent that drains an application."""

MAX_NAME = 256
MAX_POSITIONS = 1_024


class PageRequests:
    """Answers the requests of all viewers over one connection, one after the other.

    Args:
        connect: opens a connection to the agent.
        submissions: carries out the submissions of a page that may write; None: the page only reads.
    """

    def __init__(self, connect: Callable[[], ControlClient], submissions: PageSubmissions | None = None) -> None:
        self._connect, self._submissions = connect, submissions
        self._lock = threading.Lock()
        self._client: ControlClient | None = None

    @property
    def may_write(self) -> bool:
        """Return whether the page may change something."""
        return self._submissions is not None

    def read(self, what: str, body: Mapping[str, Any]) -> Any:
        """Return the answer to a question. Raises an `AgileDartError` with a text for the user."""
        name = _text(body, "name")
        match what:
            case "logs":
                return self._ask(Logs(name, _positions(body)))
            case "tap":
                return self._ask(Tap(name, _text(body, "step"), _positions(body)))
            case "scaling":
                return self._ask(ExplainScaling(name))
            case "recovery":
                return with_costs(self._ask(ExplainRecovery(name)))
            case "checkpoints":
                return self._ask(Checkpoints(name))
            case "submission" if self._submissions is not None:
                return self._submissions.latest(name)
            case _:
                raise ConfigurationError("The page asked for what this version does not know; reload it.")

    def write(self, what: str, body: Mapping[str, Any]) -> Any:
        """Carry out a change. Raises an `AgileDartError` with a text for the user."""
        if self._submissions is None:
            raise OperationFailed("This page only reads. Start it with:  agiledart web --write")
        match what:
            case "stop":
                return self._stop(body)
            case "plan":
                return self._submissions.plan(body)
            case "submit":
                return self._submissions.submit(body)
            case _:
                raise ConfigurationError("The page asked for a change that this version does not know; reload it.")

    def _stop(self, body: Mapping[str, Any]) -> Any:
        command = Stop(_text(body, "name"), now=body.get("now") is True)
        client = self._connect()  # a connection of its own: draining may take minutes
        try:
            return client.ask(command, timeout=STOP_SECONDS)
        finally:
            client.close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _ask(self, command: Command) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            try:
                return self._client.ask(command)
            except NoAgentError:
                self._client.close()
                self._client = None
                raise


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
        raise ConfigurationError(f"The page sent no {key}; reload it.")
    return value


def _positions(body: Mapping[str, Any]) -> dict[str, int]:
    """Return how far the page has read, by node."""
    after = body.get("after") or {}
    if not isinstance(after, dict) or len(after) > MAX_POSITIONS:
        raise ConfigurationError("The page sent positions that are none; reload it.")
    if not all(isinstance(value, int) and abs(value) < 1 << 63 for value in after.values()):
        raise ConfigurationError("The page sent positions that are none; reload it.")
    return {str(key): value for key, value in after.items()}
