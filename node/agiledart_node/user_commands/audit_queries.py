"""The `audit` command merges what all agents have recorded about requests. Each agent keeps its own lines; its driver has them."""

import msgspec

from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import NodeContext
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.wire.admission_responses import AuditNode, AuditResponse, AuditRow
from agiledart_node.wire.audit_messages import AuditFilter, AuditLine, AuditLines, QueryAudit, ReadAudit
from agiledart_node.wire.commands import Audit

MAX_ROWS = 4_000
"""Rows in one answer, of all agents together; the user asks again for more."""

LEAST_ROWS = 20
"""Rows of one agent at least, however many agents there are."""


class AuditQueries:
    """Asks all agents for audit lines, and answers other agents."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    async def audit(self, request: int, command: Audit) -> None:
        """Answer with the lines of all agents, in the order of their wall times."""
        wanted = AuditFilter(command.since_ms, command.requester, command.application)

        def question(number: int, peer: Peer, count: int) -> QueryAudit:
            limit = max(LEAST_ROWS, MAX_ROWS // count)
            return QueryAudit(number, wanted, command.after.get(peer.node.hex, 0), limit, command.verify)

        self._context.reply(request, _response(await ask_all_agents(self._context, question, AuditLines)))

    async def answer_agent(self, sender: Peer, message: QueryAudit) -> None:
        """Answer another agent with the lines kept here."""
        context, number = self._context, self._context.requests.number()
        answers = await context.ask_driver(number, ReadAudit(number, message), context.config.report_timeout_ns)
        answer = answers.get(number)
        lines = answer.result if isinstance(answer, Completed) else None
        if isinstance(lines, AuditLines):
            known = context.known()[:MAX_AGENTS]
            context.send(sender, msgspec.structs.replace(lines, request=message.request, known=known))


def _response(answers: list[tuple[Peer, AuditLines | None]]) -> AuditResponse:
    names = display_names(tuple(peer for peer, _ in answers))
    rows, nodes, silent = [], [], []
    for peer, answer in answers:
        name = names[peer.node]
        if answer is None:
            silent.append(name)
            continue
        rows += [_row(name, line) for line in answer.lines]
        nodes.append(
            AuditNode(
                name, peer.node.hex, answer.reached, answer.has_more, answer.kept, list(answer.faults), answer.heads
            )
        )
    rows.sort(key=lambda row: (row.at_ms, row.node, row.number))
    return AuditResponse(rows, sorted(nodes, key=lambda node: node.node), sorted(silent))


def _row(node: str, line: AuditLine) -> AuditRow:
    return AuditRow(node, **msgspec.structs.asdict(line))
