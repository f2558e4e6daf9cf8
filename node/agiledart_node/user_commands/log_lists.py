"""Lists of the logs whose names fit a pattern, of all nodes."""

from fnmatch import fnmatchcase

from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.wire.log_list_messages import (
    MAX_LOGS_LISTED,
    FindLogs,
    LogName,
    LogNames,
    LogsFound,
    QueryLogNames,
    ReadLogNames,
)


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
