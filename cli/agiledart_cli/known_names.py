"""Types of arguments that name an application, a step, a stage or a node: a shell completes them, and a missing one is answered
with the names there are.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from agiledart_kernel.errors import AgileDartError
from agiledart_kernel.text import harmless

ASK_SECONDS = 2.0
"""Longest wait for the agent: a person waits for the completion."""

MAX_LISTED = 20
"""Names that a message lists."""

Lookup = Callable[[Any, click.Context | None], list[str]]
"""(client, context) → names that the agent knows."""


class KnownName(click.types.StringParamType):
    """A text; the agent knows which ones there are.

    Args:
        plural: the word for them in messages.
        lookup: returns them.
    """

    def __init__(self, plural: str, lookup: Lookup) -> None:
        self._plural, self._lookup = plural, lookup

    def names(self, context: click.Context | None) -> list[str]:
        """Return the names; none when no agent answers, or the names that they depend on are missing."""
        from agiledart_control.agent_place import find_agent
        from agiledart_control.control_client import ControlClient

        given = {} if context is None else context.params
        with contextlib.suppress(AgileDartError, OSError, KeyError):
            place = find_agent(given.get("agent"))
            with ControlClient(place, given.get("identity"), connect_seconds=ASK_SECONDS) as client:
                return sorted(dict.fromkeys(harmless(name) for name in self._lookup(client, context)))
        return []

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with the text so far."""
        return [CompletionItem(name) for name in self.names(ctx) if name.startswith(incomplete)]

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        """Return the names, for a command line without this argument."""
        names = self.names(ctx)
        if not names:
            return None
        more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        return f"{self._plural}: {', '.join(names[:MAX_LISTED])}{more}."


def _applications(client: Any, context: click.Context | None) -> list[str]:
    from agiledart_node.wire.commands import ListApplications

    return [application["name"] for application in client.ask(ListApplications(), timeout=ASK_SECONDS)["applications"]]


def _stages(client: Any, context: click.Context | None) -> list[str]:
    from agiledart_node.wire.commands import Status

    assert context is not None  # its application is an argument before it
    return list(client.ask(Status(context.params["name"]), timeout=ASK_SECONDS)["placement"])


def _steps(client: Any, context: click.Context | None) -> list[str]:
    return [step for stage in _stages(client, context) for step in stage.split("+")]


def _nodes(client: Any, context: click.Context | None) -> list[str]:
    from agiledart_node.wire.commands import Nodes

    return [node["name"] for node in client.ask(Nodes(), timeout=ASK_SECONDS)["nodes"]]


APPLICATION = KnownName("Applications", _applications)
STEP = KnownName("Steps", _steps)
STAGE = KnownName("Stages", _stages)
NODE = KnownName("Nodes", _nodes)
