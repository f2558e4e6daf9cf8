"""Lists of the logs whose names fit a pattern: each agent knows its own, and any agent asks all others for a reader."""

from fnmatch import fnmatchcase
from typing import Annotated, Final

import msgspec

from agiledart_kernel.machine import Completed, Effect, Event, Message
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents

MAX_LOGS_LISTED: Final = 2_048
"""Logs of one node in one answer."""

_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=80)]


class LogName(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A log of a node, with the ownership on which the permission to read it depends."""

    name: str
    application: str
    owner: bytes = b""


class QueryLogNames(Message, frozen=True, gc=False, tag=452):
    """Request for the logs of the receiver whose names fit a pattern with `*` and `?`."""

    request: int
    pattern: _Pattern


class LogNames(Message, frozen=True, gc=False, tag=453):
    """Logs of the sender; `known`: other nodes that it knows."""

    request: int
    logs: Annotated[tuple[LogName, ...], msgspec.Meta(max_length=MAX_LOGS_LISTED)] = ()
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class FindLogs(Event, frozen=True, gc=False):
    """Request for all logs that fit a pattern. Answered by exactly one `LogsFound` with the same number (the driver's own)."""

    request: int
    pattern: str


class LogsFound(Effect, frozen=True, gc=False):
    """Logs that fit the pattern, each name once, in order. `silent`: number of agents that did not answer."""

    request: int
    logs: tuple[LogName, ...]
    silent: int = 0


class ReadLogNames(Effect, frozen=True, gc=False):
    """Read the names of this node's logs. `Completed.result`: tuple of `LogName`."""

    request: int


LogListMessage = QueryLogNames | LogNames


class LogLists:
    """Finds logs by pattern, on the asked agent and on the others."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def find(self, event: FindLogs) -> None:
        """Answer with `LogsFound`."""
        if self._context.requests.is_full:
            self._context.emit(LogsFound(event.request, (), 1))
        else:
            self._context.requests.begin(self._find(event))

    async def _find(self, event: FindLogs) -> None:
        answers = await ask_all_agents(
            self._context, lambda number, peer, count: QueryLogNames(number, event.pattern), LogNames
        )
        logs = {log.name: log for _, answer in answers if answer is not None for log in answer.logs}
        silent = sum(answer is None for _, answer in answers)
        self._context.emit(LogsFound(event.request, tuple(logs[name] for name in sorted(logs)), silent))

    async def answer_agent(self, sender: Peer, message: QueryLogNames) -> None:
        """Answer another agent with the logs here that fit."""
        context, number = self._context, self._context.requests.number()
        answer = (await context.ask_driver(number, ReadLogNames(number), context.config.report_timeout_ns)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            names = (log for log in answer.result if isinstance(log, LogName))
            fitting = tuple(log for log in names if fnmatchcase(log.name, message.pattern))[:MAX_LOGS_LISTED]
            context.send(sender, LogNames(message.request, fitting, context.known()[:MAX_AGENTS]))
