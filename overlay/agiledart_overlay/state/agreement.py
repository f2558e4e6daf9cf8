"""Agreement between ring neighbours: their identities, the leases between them, and the pending changes.

This module holds the state and its invariants; it is changed by `leases`, `range_owner`, `range_transfer`, `handshake`,
`successor_replacer`, `lease_expiry` and `merging`. A node delivers the keys between its borders to the agreed predecessor and
successor, and only while it holds a lease of both. The leaf set is only a hint for routing.

Why no key has two owners: the border of a node moves outwards only when the neighbour on that side has moved its own border back
before, or when that neighbour's lease from this node, counted here for longer than there, is over.

Source: the project's overlay specification §5, step 7.
"""

from enum import IntEnum

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.tables.arc import Arc, arc_between, is_between
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.ring_messages import QueuedJoin, RingName, Ticket

FOREVER = 1 << 62
_MAX_FINISHED = 64


class AgreedNeighbour:
    """One of the two agreed neighbours.

    Attributes:
        peer: the neighbour; this node itself in a ring of one; None outside the ring.
        lease: it lets this node deliver until then, by this node's clock counted from this node's request.
        promise: this node lets it deliver until then, by this node's clock counted from the receipt of its request.
        last_received_at: its last sign of life.
        since: instant at which it became the neighbour; older refusals and leases are late copies.
        is_dead: its promise is over and it is silent, or it is known to have stopped.
    """

    __slots__ = ("is_dead", "last_received_at", "lease", "peer", "promise", "since")

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.lease = self.promise = self.last_received_at = self.since = 0
        self.is_dead = False

    def confirm_neighbour(self, peer: Peer, now: int, lease: int, promise: int) -> None:
        """Set another neighbour."""
        self.peer, self.lease, self.promise = peer, lease, promise
        self.last_received_at = self.since = now
        self.is_dead = False

    def is_incarnation(self, peer: Peer) -> bool:
        """Report whether this incarnation of a node is the neighbour."""
        return self.peer is not None and self.peer.node == peer.node and self.peer.incarnation == peer.incarnation


class AdmissionStage(IntEnum):
    """Stage of an admission at the range owner."""

    INVITING = 1
    TRANSFERRING = 2


class Admission:
    """Admission of a joiner by a range owner; from TRANSFERRING on it does not deliver the joiner's keys until `until`."""

    __slots__ = ("lease", "queued_join", "stage", "ticket", "tries", "until")

    def __init__(self, ticket: Ticket, queued_join: QueuedJoin) -> None:
        self.ticket, self.queued_join = ticket, queued_join
        self.stage = AdmissionStage.INVITING
        self.until = self.lease = self.tries = 0


class PendingTransfer:
    """Admission of a joiner by this node's predecessor, between the two; this node does not deliver the joiner's keys."""

    __slots__ = ("joiner", "lease", "range_owner", "ticket", "until")

    def __init__(self, ticket: Ticket, joiner: Peer, range_owner: Peer, until: int, lease: int) -> None:
        self.ticket, self.joiner, self.range_owner, self.until, self.lease = ticket, joiner, range_owner, until, lease


class SuccessorReplacement:
    """Replacement of a dead successor; `candidate` None: no node is left, and old acquaintances are asked.

    Attributes:
        since: instant at which this replacement began, whichever node was asked first.
    """

    __slots__ = ("candidate", "detours", "passed_over", "sent_at", "since", "ticket", "tries")

    def __init__(
        self, ticket: Ticket, candidate: Peer | None, passed_over: dict[NodeId, None], now: int, since: int
    ) -> None:
        self.ticket, self.candidate, self.passed_over, self.sent_at = ticket, candidate, passed_over, now
        self.since = since
        self.tries = self.detours = 0


class Agreement:
    """Agreed state of one node. All instants are this node's own.

    Attributes:
        active: it may deliver: in the ring, or provisionally since a neighbour's offer.
        confirmed: its range owner has confirmed it: in the ring.
        admitting, revoking, pending_transfer, closing: pending changes; see `range_owner`, `range_transfer`,
            `successor_replacer`.
        returned: a node behind the dead successor, nearer than the candidate, that takes this node for its predecessor.
        unchecked: after a lease expiry, the leaves that have not yet answered whether this node is in the ring; None: no check.
        cleared: they all agreed, which counts until then.
        name: name of the ring, see `merging`.
        admitted: the last admission of this node that ended well.
        finished: the last admission of each former predecessor that is over here.
        postponed: a joiner that was invited when the successor died; it goes back to the queue.
        rejoin_reason, through: the reason to leave the ring and rejoin, and the member to rejoin through; None: no reason, any
            member.
        rest_ns: pause before it rejoins, so that the joiners that waited for it come first.
        expel_reason: the reason that this incarnation must not be in the ring at all.
        seeking: it looks for the ring, so it answers invitations of range owners.
        wake_deadline: a step later than this means that the node was asleep.
        has_changed: this step may let a waiting admission or replacement go on.
    """

    __slots__ = (
        "_arc",
        "_borders",
        "_config",
        "aborted",
        "active",
        "admitted",
        "admitting",
        "check_began",
        "cleared",
        "closing",
        "confirmed",
        "expel_reason",
        "finished",
        "has_changed",
        "mask",
        "me",
        "name",
        "number",
        "pending_transfer",
        "postponed",
        "predecessor",
        "rejoin_reason",
        "rejoined",
        "rest_ns",
        "returned",
        "revoking",
        "revoking_since",
        "seeking",
        "successor",
        "through",
        "unchecked",
        "wake_deadline",
    )  # fmt: skip

    def __init__(self, me: Peer, config: OverlayConfig) -> None:
        self.me = me
        self._config = config
        self.mask = (1 << config.id_bits) - 1
        self.number = 0
        self.name: RingName = (0, me.node)
        self.rejoin_reason: str | None = None
        self.through: Peer | None = None
        self.expel_reason: str | None = None
        self.rest_ns = 0
        self.seeking = False
        self.aborted = self.rejoined = 0
        self.wake_deadline = FOREVER
        self.finished: dict[NodeId, Ticket] = {}
        self._arc: Arc | None = None
        self._borders: tuple[int, int] | None = None
        self.reset()

    def reset(self) -> None:
        """Forget all agreements: this node is outside the ring."""
        self.active = self.confirmed = self.has_changed = False
        self.predecessor, self.successor = AgreedNeighbour(), AgreedNeighbour()
        self.admitting: Admission | None = None
        self.revoking: tuple[Ticket, Peer] | None = None
        self.revoking_since = 0
        self.pending_transfer: PendingTransfer | None = None
        self.closing: SuccessorReplacement | None = None
        self.returned: Peer | None = None
        self.unchecked: dict[NodeId, Peer] | None = None
        self.check_began = self.cleared = 0
        self.postponed: QueuedJoin | None = None
        self.admitted: Ticket | None = None

    def create_ring(self, now: int) -> None:
        """Create a ring of one."""
        self.reset()
        self.active = self.confirmed = self.has_changed = True
        for side in (self.predecessor, self.successor):
            side.confirm_neighbour(self.me, now, FOREVER, 0)

    def ticket(self) -> Ticket:
        """Return the name of one more admission or replacement of this incarnation."""
        self.number += 1
        return self.me.node, self.me.incarnation, self.number

    # ---- durations

    def held(self, granted_ns: int) -> int:
        """Return the time that the holder counts a lease: shorter than its granter, by the margin for different clock speeds."""
        return granted_ns * (1_000 - self._config.lease_margin_permille) // 1_000

    # ---- the arc

    @property
    def lease(self) -> int:
        """Return the instant until which both neighbours let this node deliver."""
        return min(self.predecessor.lease, self.successor.lease)

    def claim(self, now: Instant) -> Arc | None:
        """Return the keys that this node would deliver now."""
        if not self.active or self.unchecked is not None or now >= self.lease:
            return None
        left, right = self._left_border(), self._right_border()
        if self._borders != (left, right):
            self._borders = (left, right)
            self._arc = arc_between(left, self.me.node, right, self.mask)
        return self._arc

    def _left_border(self) -> int:
        if self.pending_transfer is not None:
            return self.pending_transfer.joiner.node
        assert self.predecessor.peer is not None
        return self.predecessor.peer.node

    def _right_border(self) -> int:
        if self.admitting is not None and self.admitting.stage is AdmissionStage.TRANSFERRING:
            return self.admitting.queued_join.joiner.node
        assert self.successor.peer is not None
        return self.successor.peer.node

    def owns(self, key: int, now: Instant) -> bool:
        """Report whether this node delivers a key now."""
        arc = self.claim(now)
        return arc is not None and (key - arc.start) & self.mask < arc.length

    def is_between(self, left: Peer | None, node: NodeId, right: Peer | None) -> bool:
        """Report whether a node lies strictly between two others; false when one is missing."""
        return left is not None and right is not None and is_between(left.node, node, right.node, self.mask)

    # ---- permissions

    def is_fit(self, now: int) -> bool:
        """Report whether this node lately got a proof that it is in the ring; else it grants, admits, transfers and replaces
        nothing.
        """
        return (
            self.confirmed
            and self.unchecked is None
            and now < max(self.predecessor.lease, self.successor.lease, self.cleared)
        )

    @property
    def is_alone(self) -> bool:
        """Report whether this node is its own neighbour."""
        return self.successor.peer is not None and self.successor.peer.node == self.me.node

    @property
    def is_pending(self) -> bool:
        """Report whether a change is pending on either side."""
        return (
            self.admitting is not None
            or self.revoking is not None
            or self.pending_transfer is not None
            or self.closing is not None
            or self.predecessor.is_dead
            or self.successor.is_dead
            or self.unchecked is not None
            or (self.active and not self.confirmed)
        )

    # ---- invariants

    def violations(self, now: int) -> list[str]:
        """Check that sides, leases, promises and pending changes fit together."""
        complaints = []
        sides = (("predecessor", self.predecessor), ("successor", self.successor))
        if any(self.active != (side.peer is not None) for _, side in sides) or (self.confirmed and not self.active):
            complaints.append(
                f"agreed: active is {self.active}, confirmed {self.confirmed}, and the sides do not fit that"
            )
        if not self.confirmed and (
            self.admitting or self.revoking or self.pending_transfer or self.closing or self.unchecked
        ):
            complaints.append("agreed: a change with neighbours is pending, and the node is not in the ring")
        if self.active and self.seeking and self.confirmed:
            complaints.append("agreed: the node is in the ring and looks for it")
        if self.active:
            for name, side in sides:
                complaints.extend(f"agreed: {name} {complaint}" for complaint in self._misfits(side, now))
            complaints.extend(self._pending_misfits(now))
        if (
            self.has_changed
            or self.returned
            or self.postponed
            or self.rejoin_reason is not None
            or self.expel_reason is not None
        ):
            complaints.append("agreed: a step has left something that its own end should have dealt with")
        if len(self.finished) > _MAX_FINISHED:
            complaints.append(f"bound: {len(self.finished)} admissions are remembered, at most {_MAX_FINISHED}")
        return complaints

    def _misfits(self, side: AgreedNeighbour, now: int) -> list[str]:
        config, complaints = self._config, []
        if now + self.held(max(config.lease_ns, config.admission_ns)) < side.lease != FOREVER:
            complaints.append(f"lets it deliver for {side.lease - now} ns, longer than any node grants")
        if side.promise > now + config.lease_ns:
            complaints.append(f"is promised {side.promise - now} ns, longer than a lease")
        if max(side.last_received_at, side.since) > now:
            complaints.append("gave a sign of life in the future")
        if side.is_dead and side.peer is not None and side.peer.node == self.me.node:
            complaints.append("is this node, and counts as dead")
        return complaints

    def _pending_misfits(self, now: int) -> list[str]:
        complaints = []
        before, after = self.predecessor.peer, self.successor.peer
        admitting, pending_transfer = self.admitting, self.pending_transfer
        if admitting is not None:
            if not self.is_between(self.me, admitting.queued_join.joiner.node, after):
                complaints.append(
                    f"admitting: {admitting.queued_join.joiner.node.short} does not lie between this node and its successor"
                )
            is_transferring = admitting.stage is AdmissionStage.TRANSFERRING
            if is_transferring != (admitting.until > 0) or admitting.until > now + self._config.admission_ns:
                complaints.append(f"admitting: stage {admitting.stage.name} until {admitting.until - now} ns from now")
            if admitting.lease > admitting.until:
                complaints.append(
                    "admitting: the joiner lets this node deliver longer than the joiner itself may deliver"
                )
            if self.revoking is not None:
                complaints.append("admitting: the admission before is not over yet")
        if pending_transfer is not None:
            if (
                before is None
                or pending_transfer.range_owner.node != before.node
                or pending_transfer.ticket[0] != before.node
            ):
                complaints.append(f"pending_transfer: {pending_transfer.range_owner.node.short} is not the predecessor")
            if not self.is_between(before, pending_transfer.joiner.node, self.me):
                complaints.append(
                    f"pending_transfer: {pending_transfer.joiner.node.short} does not lie between the predecessor and this node"
                )
        elif before is not None and before.node == self.me.node and not self.is_alone:
            complaints.append("agreed: this node is its own predecessor and not its own successor")
        if self.closing is not None and (admitting or self.revoking or not self.successor.is_dead):
            complaints.append("closing: the successor lives, or an admission is under way")
        return complaints

    def finish(self, ticket: Ticket) -> None:
        """Remember that an admission of a predecessor is over: late copies of its messages no longer count."""
        range_owner = ticket[0]
        old = self.finished.pop(range_owner, ticket)
        self.finished[range_owner] = max(old, ticket)
        if len(self.finished) > _MAX_FINISHED:
            del self.finished[next(iter(self.finished))]
