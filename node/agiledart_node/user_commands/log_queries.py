"""Answers to users' queries about the output of applications: logs. Their body: docs/reference/control-api.md."""

from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import NodeContext
from agiledart_node.user_commands.status_queries import StatusQueries
from agiledart_node.wire.effects import ReadLogs
from agiledart_node.wire.formation_messages import LogLine, LogLines, QueryLogs
from agiledart_node.wire.log_responses import LogRow, LogsResponse

MAX_LINES = 1_000
"""Log lines of one node in one answer."""


class LogQueries:
    """Lines that the code of applications has written, on the asked agent and on their hosts."""

    def __init__(self, context: NodeContext, status_queries: StatusQueries) -> None:
        self._context, self._status_queries = context, status_queries

    async def logs(self, request: int, name: str, after: dict[str, int], principal: Principal) -> None:
        """Answer `logs` with the lines of all hosts, in the order of their wall times."""
        record = await self._status_queries.record(name, principal, "logs")
        hosts = record.hosts()
        names = display_names(hosts)
        answers = await self._context.requests.ask_all(
            hosts,
            lambda number, peer: QueryLogs(number, name, max(0, after.get(names[peer.node], 0))),
            LogLines,
            Duration(self._context.config.report_timeout_ns),
        )
        rows, silent, reached = [], [], dict(after)
        for peer, answer in answers:
            node = names[peer.node]
            if answer is None:
                silent.append(node)
                continue
            for line in answer.lines:
                rows.append(LogRow(node, line.number, line.at_ms, line.step, line.text))
                reached[node] = max(reached.get(node, 0), line.number)
        rows.sort(key=lambda row: (row.at_ms, row.node, row.number))
        self._context.reply(request, LogsResponse(name, record.state, rows, reached, silent))

    async def local_logs(self, sender: Peer, message: QueryLogs) -> None:
        """Answer another agent with the log lines kept here."""
        number = self._context.requests.number()
        effect = ReadLogs(number, message.application, message.after, MAX_LINES)
        answers = await self._context.ask_driver(number, effect, self._context.config.report_timeout_ns)
        answer = answers.get(number)
        lines: tuple[LogLine, ...] = ()
        if isinstance(answer, Completed) and isinstance(answer.result, tuple | list):
            lines = tuple(line for line in answer.result if isinstance(line, LogLine))[:MAX_LINES]
        self._context.send(sender, LogLines(message.request, lines))
