"""Base of the services that carry out users' commands about applications."""

from dataclasses import dataclass

from agiledart_node.context.node_context import NodeContext
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.user_commands.status_queries import StatusQueries


@dataclass(frozen=True, slots=True)
class CommandParts:
    """Parts of the node that such a service uses: records, the state of applications, and verified commands."""

    context: NodeContext
    records: Records
    status_queries: StatusQueries
    watching: ApplicationWatcher
    verifier: CommandVerifier


class CommandService:
    """A service on these parts."""

    def __init__(self, parts: CommandParts) -> None:
        self._context, self._records, self._verifier = parts.context, parts.records, parts.verifier
        self._status_queries, self._watching = parts.status_queries, parts.watching
