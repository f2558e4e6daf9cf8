"""The joiner's side of an admission: it takes one call at a time, takes the place it is offered, and waits to be confirmed.

    idle         Call →        called: Here → guardian; t0 := now, once for each ticket, however often the call is repeated
    called       Place →       provisional: delivers from now on, until t0 + admission; Taken → guardian, repeated
    called       time over →   idle
    provisional  Confirmed →   in the ring: Renew → successor, which only now takes it for its predecessor; then `arrival`
    provisional  TooLate, or no answer a moment after t0 + admission → out: it has stopped by its own clock, and joins again
    called       another Call → Busy
    any          a Call whose time has begun and is over, or was given up → Busy: it never begins again
    idle         WhatOfYield → Unyield: that call will never bring it in

t0 must not move with a repeated call: the guardian counts from the first Here that reached it, so a later t0 could let the joiner
deliver longer than the guardian holds its keys free for it. Nor may it begin anew when the node has taken other calls, or has been
a member and joins again: copies of a Call and of its Place may come however late, from two links that were held. So the last ticket
of each guardian is remembered for the whole life of the process.

Source: the project's overlay specification §5, step 7 b and d.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.messages import Sighting
from agiledart_overlay.wire.ring_messages import (
    Busy,
    Call,
    Confirmed,
    Here,
    JoinCall,
    Place,
    Renew,
    Taken,
    Ticket,
    TooLate,
    Unyield,
    WhatOfYield,
)

_MAX_BEGUN = 256
"""Guardians whose last ticket is remembered: a copy would have to be later than the admissions by as many others."""


class Turn:
    """A call that this joiner has answered."""

    __slots__ = ("began", "guardian", "refutations", "sightings", "ticket")

    def __init__(self, ticket: Ticket, guardian: Peer, message: Call, began: Instant) -> None:
        self.ticket, self.guardian, self.began = ticket, guardian, began
        self.refutations, self.sightings = message.refutations, message.sightings


class Handshake:
    """Admissions of this node itself."""

    __slots__ = ("_begun", "_turn", "_view", "calls", "leaves")

    def __init__(self, view: View) -> None:
        self._view = view
        self._turn: Turn | None = None
        self._begun: dict[NodeId, Ticket] = {}
        self.calls: tuple[JoinCall, ...] = ()
        """Joiners handed over with the confirmation."""
        self.leaves: tuple[Sighting, ...] = ()
        """What guardian and successor told of their leaves."""

    @property
    def is_called(self) -> bool:
        """Whether an admission of this node is under way."""
        turn = self._turn
        return turn is not None and self._view.now < turn.began + self._view.config.admission_ns

    @property
    def was_called(self) -> bool:
        """Whether any guardian has ever begun to let this life in: others may know it by that."""
        return bool(self._begun)

    def reset(self) -> None:
        """Begin anew."""
        self._turn = None
        self.calls, self.leaves = (), ()
        self._view.cancel_timer("taken")

    def on_call(self, sender: Peer, message: Call) -> None:
        """A guardian has time for this node."""
        view = self._view
        agreed, turn = view.agreed, self._turn
        is_other = turn is not None and turn.ticket != message.ticket
        if agreed.active or not agreed.seeking or (is_other and self.is_called) or message.ticket[0] != sender.node:
            view.send(sender, Busy(message.ticket))
            return
        if turn is None or is_other:
            if message.ticket <= self._begun.get(sender.node, (sender.node, 0, 0)):
                view.send(sender, Busy(message.ticket))
                return
            self._begin(Turn(message.ticket, sender, message, view.now))
        view.send(sender, Here(message.ticket))

    def _begin(self, turn: Turn) -> None:
        self._turn = turn
        self._begun.pop(turn.guardian.node, None)
        self._begun[turn.guardian.node] = turn.ticket
        if len(self._begun) > _MAX_BEGUN:
            del self._begun[next(iter(self._begun))]

    def on_place(self, sender: Peer, message: Place) -> None:
        """Nobody delivers this node's keys now: it does."""
        view = self._view
        agreed, turn = view.agreed, self._turn
        if agreed.active or not agreed.seeking or turn is None or turn.ticket != message.ticket:
            return
        lease = turn.began + agreed.held(view.config.admission_ns)
        if view.now >= lease:
            return
        agreed.active = True
        promise = view.now + view.config.lease_ns
        agreed.predecessor.settle(turn.guardian, view.now, lease, promise)
        agreed.successor.settle(sender, view.now, lease, promise)
        own = (Sighting(turn.guardian, turn.refutations), Sighting(sender, message.refutations))
        self.leaves = (*own, *turn.sightings, *message.sightings)
        self._tell_taken(turn)

    def _tell_taken(self, turn: Turn) -> None:
        view = self._view
        view.send(turn.guardian, Taken(turn.ticket, view.now, view.refutations))
        view.set_timer("taken", view.now + view.config.handshake_retry_ns)

    def on_timer(self) -> None:
        """Not confirmed yet."""
        view = self._view
        agreed, turn = view.agreed, self._turn
        if turn is None or not agreed.active or agreed.confirmed:
            return
        if view.now > turn.began + view.config.admission_ns + view.config.handshake_retry_ns:
            agreed.refused = "its guardian did not confirm it"
        else:
            self._tell_taken(turn)

    def on_confirmed(self, sender: Peer, message: Confirmed) -> bool:
        """The guardian counts this node as its successor: it is in. True when that is new."""
        view = self._view
        agreed, turn = view.agreed, self._turn
        if not agreed.active or agreed.confirmed or turn is None or turn.ticket != message.ticket:
            return False
        if turn.guardian.life != sender.life or not turn.began <= message.at <= view.now:
            return False
        predecessor, successor = agreed.predecessor, agreed.successor
        agreed.confirmed = agreed.stirred = True
        agreed.seeking = False
        agreed.name = message.name
        predecessor.lease = max(predecessor.lease, message.at + agreed.held(view.config.lease_ns))
        predecessor.heard = successor.heard = view.now
        predecessor.promise = successor.promise = view.now + view.config.lease_ns
        assert successor.peer is not None
        view.send(successor.peer, Renew(False, view.now, view.refutations, agreed.name))
        self.calls = message.calls
        view.book.inherit(message.lost, view.now)
        view.cancel_timer("taken")
        return True

    def on_too_late(self, sender: Peer, message: TooLate) -> None:
        """The guardian has given this admission up."""
        agreed, turn = self._view.agreed, self._turn
        if agreed.active and not agreed.confirmed and turn is not None and turn.ticket == message.ticket:
            agreed.refused = "its guardian has given up"

    def on_what_of_yield(self, sender: Peer, message: WhatOfYield) -> None:
        """The successor of an admission of this node asks what came of it."""
        view = self._view
        agreed = view.agreed
        is_of_earlier_life = message.joiner.incarnation < view.me.incarnation
        if agreed.confirmed and agreed.successor.is_life(sender) and not is_of_earlier_life:
            view.send(sender, Renew(False, view.now, view.refutations, agreed.name))
        elif not agreed.active or is_of_earlier_life:
            if self._turn is not None and self._turn.ticket == message.ticket:
                self._turn = None
            view.send(sender, Unyield(message.ticket))

    def violations(self) -> list[str]:
        """Who has taken a place tells its guardian until it is confirmed; tickets are bounded."""
        found = []
        agreed = self._view.agreed
        if agreed.active and not agreed.confirmed:
            found = (
                self._view.unguarded("taken")
                if self._turn is not None
                else ["joiner: it took a place that nobody offered"]
            )
        if len(self._begun) > _MAX_BEGUN:
            found.append(f"bound: {len(self._begun)} tickets, at most {_MAX_BEGUN}")
        return found
