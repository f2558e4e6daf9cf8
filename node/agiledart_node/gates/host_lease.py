"""Lease of this node, when a gate has leased its machine: it takes work after a first renewal, and ends itself without renewals."""

from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal, refusal_before_lookup
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.draining.node_drain import NodeDrain
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import why_not
from agiledart_node.wire.effects import EndAgent
from agiledart_node.wire.lease_messages import HostLease, LeaseStatus, RenewHostLease, RequestLease
from agiledart_node.wire.lease_responses import LeaseResponse, lease_row


class LeaseKeeper:
    """Renewals of this node's lease, and renewals that users of this node ask for."""

    def __init__(self, context: NodeContext, drain: NodeDrain, verifier: CommandVerifier) -> None:
        self._context, self._drain, self._verifier = context, drain, verifier
        self._terms = context.config.lease
        self._gate = self._terms.gate if self._terms is not None else ""
        self._entry = b""
        self._renewed: Instant | None = None
        self._is_accepted = self._has_ended = False
        if self._terms is not None:
            drain.begin_empty()

    def lease(self) -> HostLease | None:
        """Return the lease; None: this node's machine is not leased."""
        terms = self._terms
        if terms is None:
            return None
        silent = 0 if self._renewed is None else self._context.now - self._renewed
        return HostLease(
            terms.lease_id, terms.host_id, self._gate, silent // 1_000_000, self._entry, self._drain.is_empty,
            self._is_accepted,
        )  # fmt: skip

    async def renew(self, request: int, command: RenewHostLease, principal: Principal, signed: bytes) -> None:
        """Pass a gate's renewal on to the node, and answer with what the node says. Raises CommandRefused."""
        context = self._context
        peer = context.node_named(command.node)
        number = context.requests.number()
        answer = await context.requests.ask(
            peer,
            RequestLease(number, command, signed),
            number,
            LeaseStatus,
            Duration(context.config.ask_timeout_ns),
        )
        if answer is None:
            raise CommandRefused(f"{context.names()[peer.node]} does not answer.")
        if answer.refusal or answer.lease is None:
            raise NotAllowed(answer.reason, answer.refusal) if answer.reason else CommandRefused(answer.refusal)
        context.reply(request, LeaseResponse(lease_row(answer.lease)))

    async def asked(self, sender: Peer, message: RequestLease) -> None:
        """Carry out a renewal that an agent passes on."""
        try:
            self._take(message)
            answer = LeaseStatus(message.request, self.lease())
        except NotAllowed as error:
            self._context.drop(f"command: {error.reason}")
            answer = LeaseStatus(message.request, None, error.text, error.reason)
        except CommandRefused as error:
            answer = LeaseStatus(message.request, None, error.text)
        self._context.send(sender, answer)

    def _take(self, message: RequestLease) -> None:
        """Renew the lease. Raises CommandRefused: another gate has the node."""
        command, terms, now = message.command, self._terms, self._context.now
        key = b""
        if self._verifier.requires_signatures:
            principal, _ = self._verifier.identify_requester(message.signed_command, command, Principal(), "")
            if why := refusal_before_lookup(principal, "lease"):
                raise NotAllowed(why, why_not(principal, "lease", why))
            key = principal.key
        if terms is None or command.lease_id != terms.lease_id:
            shown = terms.lease_id if terms is not None else "no lease"
            raise CommandRefused(f"{self._context.me.name} shows {shown}, not {command.lease_id}.")
        if self._has_ended:
            raise CommandRefused(f"{self._context.me.name} ends: its lease was not renewed in time.")
        silent = 0 if self._renewed is None else now - self._renewed
        if command.gate != self._gate and silent < terms.silence_ns:
            raise CommandRefused(f"{self._gate} has renewed {terms.lease_id} {silent // SECOND} s ago.")
        self._gate, self._entry, self._renewed = command.gate, command.entry, now
        self._drain.lease_key = key
        if not self._is_accepted:
            self._is_accepted = True
            self._drain.begin_to_serve()

    def patrol(self) -> None:
        """End this agent, and so its machine, when no gate has renewed the lease for a unit and the grace."""
        terms, now = self._terms, self._context.now
        if terms is None or self._has_ended:
            return
        if self._renewed is None:
            self._renewed = now  # time counts from its start
        if now - self._renewed >= terms.unit_ns + terms.grace_ns:
            self._has_ended = True
            self._context.emit(EndAgent())
