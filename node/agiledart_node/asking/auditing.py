"""`audit`: what all agents have noted of who wanted what, merged. Each keeps its own lines; the driver has them."""

import msgspec

from agiledart_kernel.machine import Completed
from agiledart_kernel.peer import Peer
from agiledart_node.asking.everybody import MAX_AGENTS, ask_everybody
from agiledart_node.desk.desk import Desk
from agiledart_node.desk.names import display_names
from agiledart_node.wire.admission_bodies import AuditBody, AuditNode, AuditRow
from agiledart_node.wire.audit_messages import AskAudit, AuditLine, AuditLines, ReadAudit, Wanted
from agiledart_node.wire.commands import Audit

MAX_ROWS = 4_000
"""In one answer, of all agents together; who wants more asks again."""

LEAST_ROWS = 20
"""Of one agent, however many there are."""


class Auditing:
    """Asks, and answers other agents."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def audit(self, request: int, command: Audit) -> None:
        """Lines of all agents, in the order of their wall times."""
        wanted = Wanted(command.since_ms, command.who, command.application)

        def question(number: int, peer: Peer, count: int) -> AskAudit:
            limit = max(LEAST_ROWS, MAX_ROWS // count)
            return AskAudit(number, wanted, command.after.get(peer.node.hex, 0), limit, command.verify)

        self._desk.reply(request, _body(await ask_everybody(self._desk, question, AuditLines)))

    async def local(self, sender: Peer, message: AskAudit) -> None:
        """Answer another agent with what is kept here."""
        desk, number = self._desk, self._desk.talks.number()
        answers = await desk.driven(number, ReadAudit(number, message), desk.config.report_timeout_ns)
        answer = answers.get(number)
        found = answer.result if isinstance(answer, Completed) else None
        if isinstance(found, AuditLines):
            known = desk.known()[:MAX_AGENTS]
            desk.send(sender, msgspec.structs.replace(found, request=message.request, known=known))


def _body(answers: list[tuple[Peer, AuditLines | None]]) -> AuditBody:
    shown = display_names(tuple(peer for peer, _ in answers))
    rows, nodes, silent = [], [], []
    for peer, answer in answers:
        name = shown[peer.node]
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
    return AuditBody(rows, sorted(nodes, key=lambda node: node.node), sorted(silent))


def _row(node: str, line: AuditLine) -> AuditRow:
    return AuditRow(node, **msgspec.structs.asdict(line))
