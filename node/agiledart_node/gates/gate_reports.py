"""Gates beside agents: their reports, the slot `provisioner` of a zone, and orders of admins to gates."""

from dataclasses import dataclass, field

from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal, refusal_before_lookup
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import why_not
from agiledart_node.records.records import Records
from agiledart_node.scheduling.claims import Claims
from agiledart_node.user_commands.all_agents import MAX_AGENTS, ask_all_agents
from agiledart_node.wire.lease_messages import (
    MAX_ORDERS,
    GateList,
    GateReport,
    NoteLease,
    OrderGate,
    QueryGates,
    ReportGate,
    ShowProvisioning,
)
from agiledart_node.wire.lease_responses import GateOrdersResponse, GateRow, GatesResponse

MAX_GATES = 4
"""Gates beside one agent."""

FRESH_NS = 60 * SECOND
"""A gate that has not reported for this time counts as gone; its slot is free."""

FORGOTTEN_NS = 600 * SECOND
"""Reports older than this are dropped."""

ORDERS = ("pause", "resume", "release")


@dataclass(slots=True)
class _Gate:
    """A gate beside this agent; `orders` wait for its next report."""

    command: ReportGate
    at: Instant
    orders: list[tuple[str, str, str]] = field(default_factory=list)


class GateReports:
    """Gates beside this agent, and queries about all gates."""

    def __init__(self, context: NodeContext, records: Records, verifier: CommandVerifier) -> None:
        self._context, self._verifier = context, verifier
        self._claims = Claims(context, records)
        self._gates: dict[str, _Gate] = {}

    def reports(self) -> tuple[GateReport, ...]:
        """Return the reports of the gates beside this agent."""
        now = self._context.now
        for name in [name for name, gate in self._gates.items() if now - gate.at > FORGOTTEN_NS]:
            del self._gates[name]
        return tuple(
            GateReport(name, gate.command.zone, (now - gate.at) // 1_000_000, gate.command.report, gate.command.places)
            for name, gate in self._gates.items()
        )

    async def leasable_places(self) -> int:
        """Return the instance places that gates may still lease, for an application that no nodes could hold now."""
        answers = await ask_all_agents(self._context, lambda number, peer, count: QueryGates(number), GateList)
        return sum(
            report.places
            for _, answer in answers
            for report in (answer.reports if answer is not None else ())
            if report.age_ms * 1_000_000 < FRESH_NS
        )

    # ---- the gate beside this agent

    async def report(self, request: int, command: ReportGate, principal: Principal) -> None:
        """Store a gate's report. Answer whether it leads in its zone, which other gates report, and the orders for it."""
        known = self._gates.get(command.gate)
        if known is None and len(self._gates) >= MAX_GATES:
            raise CommandRefused(
                f"{MAX_GATES} gates report to this agent already. Use another agent for {command.gate}."
            )
        waiting = known.orders if known is not None else []
        self._gates[command.gate] = _Gate(command, self._context.now, waiting)
        gates = await self._fresh_gates()
        others = sorted(name for name, _ in gates if name != command.gate)
        leads = await self._holds_zone(command, set(gates))
        orders = list(waiting)
        waiting.clear()  # not before the answer leaves: a report that fails on its way takes no order along
        self._context.reply(request, GateOrdersResponse(leads, others, orders))

    async def _fresh_gates(self) -> list[tuple[str, Peer]]:
        answers = await ask_all_agents(self._context, lambda number, peer, count: QueryGates(number), GateList)
        return [
            (report.gate, peer)
            for peer, answer in answers
            for report in (answer.reports if answer is not None else ())
            if report.age_ms * 1_000_000 < FRESH_NS
        ]

    async def _holds_zone(self, command: ReportGate, fresh: set[tuple[str, Peer]]) -> bool:
        """Return whether this agent holds the slot of a zone, and claim it when its holder is gone or has no gate.

        Of several gates beside one agent the first one leads.
        """
        domain, me = f"provisioner {command.zone}", self._context.me
        if next(name for name, gate in self._gates.items() if gate.command.zone == command.zone) != command.gate:
            return False
        seen = await self._claims.read(domain, 0)
        if seen is None:
            return False
        winner = seen[1].winner if seen[1] is not None else None
        if winner is None or winner.node not in {agent.node for _, agent in fresh}:
            claim = await self._claims.claim(domain, 0, me, seen)
            winner = claim.winner if claim is not None else None
        return winner is not None and winner.node == me.node

    async def note(self, request: int, command: NoteLease, principal: Principal, signed: bytes) -> None:
        """Answer a note for the audit, which the agent writes with the answer. Raises NotAllowed."""
        self._verifier.identify_requester(signed, command, principal, "")
        self._context.reply(request, GateOrdersResponse(False, [], []))

    # ---- users

    async def show(self, request: int, command: ShowProvisioning, principal: Principal) -> None:
        """Answer with the reports of all gates."""
        answers = await ask_all_agents(self._context, lambda number, peer, count: QueryGates(number), GateList)
        self._context.reply(request, _response(answers))

    async def order(
        self, request: int, command: OrderGate, submitter: str, principal: Principal, signed: bytes
    ) -> None:
        """Pass an admin's order on to the gates. Raises CommandRefused."""
        if command.order not in ORDERS:
            raise CommandRefused(f"{command.order!r} is no order: use one of {', '.join(ORDERS)}.", 2)
        self._check(command, signed, principal)
        answers = await ask_all_agents(
            self._context, lambda number, peer, count: QueryGates(number, command, signed), GateList
        )
        for _, answer in answers:
            if answer is not None and answer.reason:
                raise NotAllowed(answer.reason, answer.refusal)
        response = _response(answers)
        if not response.taken:
            hosts = f" has a host {command.host}" if command.host else " reports"
            raise CommandRefused(f"No gate{hosts}. Look at:  agiledart provision status", 2)
        self._context.reply(request, response)

    def _check(self, command: OrderGate, signed: bytes, principal: Principal) -> str:
        """Return the signer of an order. Raises NotAllowed: the signer is no admin."""
        if not self._verifier.requires_signatures:
            return principal.role
        principal, submitter = self._verifier.identify_requester(signed, command, Principal(), "")
        if why := refusal_before_lookup(principal, "provision"):
            raise NotAllowed(why, why_not(principal, "provision", why))
        return submitter

    async def answer_agent(self, sender: Peer, message: QueryGates) -> None:
        """Answer another agent, and take an order for the gates beside this one."""
        taken: list[str] = []
        refusal = reason = ""
        if message.order is not None:
            try:
                taken = self._take(message.order, self._check(message.order, message.signed_command, Principal()))
            except NotAllowed as error:
                refusal, reason = error.text, error.reason
        known = self._context.known()[:MAX_AGENTS]
        self._context.send(sender, GateList(message.request, self.reports(), tuple(taken), refusal, reason, known))

    def _take(self, order: OrderGate, admin: str) -> list[str]:
        taken = []
        for name, gate in self._gates.items():
            if order.host and f'"{order.host}"'.encode() not in gate.command.report:
                continue
            line = (order.order, order.host, admin)
            if line not in gate.orders:
                if len(gate.orders) >= MAX_ORDERS:
                    self._context.drop("order for a gate")
                    continue
                gate.orders.append(line)
            taken.append(name)
        return taken


def _response(answers: list[tuple[Peer, GateList | None]]) -> GatesResponse:
    names = display_names(tuple(peer for peer, _ in answers))
    rows: list[GateRow] = []
    taken: list[str] = []
    silent: list[str] = []
    for peer, answer in answers:
        if answer is None:
            silent.append(names[peer.node])
            continue
        taken += answer.taken
        rows += [
            GateRow(
                report.gate,
                report.zone,
                names[peer.node],
                report.age_ms / 1e3,
                report.report.decode("utf-8", "replace"),
            )
            for report in answer.reports
        ]
    return GatesResponse(sorted(rows, key=lambda row: (row.zone, row.gate)), sorted(taken), sorted(silent))
