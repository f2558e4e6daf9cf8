"""The agreed ring as one part: who hears which message about it, and what goes on at the end of a step or round.

Composes `leases`, `join_route`, `admitting`, `yielding`, `joiner`, `closing`, `lapse` and `merging` over the shared `Agreement`.
"""

from collections.abc import Callable
from typing import Any

from agiledart_kernel.peer import Peer
from agiledart_overlay.ring.admitting import Guardian
from agiledart_overlay.ring.closing import Gaps
from agiledart_overlay.ring.join_route import Way
from agiledart_overlay.ring.joiner import Handshake
from agiledart_overlay.ring.lapse import Lapse
from agiledart_overlay.ring.leases import Leases
from agiledart_overlay.ring.merging import Merging
from agiledart_overlay.ring.yielding import Yielding
from agiledart_overlay.state.view import View
from agiledart_overlay.wire import ring_messages as wire
from agiledart_overlay.wire.messages import JoinRequest


class Neighbours:
    """Agreed neighbours of one node."""

    __slots__ = ("_view", "gaps", "guardian", "handshake", "lapse", "leases", "merging", "timers", "way", "yielding")

    def __init__(self, view: View) -> None:
        self._view = view
        self.leases = Leases(view)
        self.guardian = Guardian(view)
        self.way = Way(view, self.guardian)
        self.yielding = Yielding(view)
        self.handshake = Handshake(view)
        self.gaps = Gaps(view)
        self.lapse = Lapse(view)
        self.merging = Merging(view, self.leases)
        self.timers: dict[str, Callable[[], None]] = {
            "admit": self.guardian.on_timer,
            "taken": self.handshake.on_timer,
            "close": self.gaps.on_timer,
            "promise": self.leases.look_for_dead,
        }

    def messages(self) -> dict[type, Callable[[Peer, Any], None]]:
        """Who hears what; `Queued` and `Confirmed` concern the whole node and are heard by the machine."""
        guardian, gaps, leases, handshake = self.guardian, self.gaps, self.leases, self.handshake
        return {
            JoinRequest: self.way.on_join_request,
            wire.JoinBounced: self.way.on_bounced,
            wire.Call: handshake.on_call,
            wire.Here: guardian.on_here,
            wire.Busy: guardian.on_busy,
            wire.Yield: self.yielding.on_yield,
            wire.Place: handshake.on_place,
            wire.Taken: guardian.on_taken,
            wire.TooLate: handshake.on_too_late,
            wire.Unyield: self.yielding.on_unyield,
            wire.Unyielded: guardian.on_unyielded,
            wire.WhatOfYield: self._on_what_of_yield,
            wire.Renew: leases.on_renew,
            wire.Lease: leases.on_lease,
            wire.NotNeighbour: leases.on_not_neighbour,
            wire.Outside: leases.on_outside,
            wire.Seek: leases.on_seek,
            wire.Close: gaps.on_close,
            wire.Closed: gaps.on_closed,
            wire.CloseElsewhere: gaps.on_elsewhere,
            wire.CloseWait: gaps.on_wait,
            wire.CloseRefused: gaps.on_refused,
            wire.StillIn: self.lapse.on_still_in,
            wire.Verdict: self.lapse.on_verdict,
            wire.RingProbe: self.merging.on_ring_probe,
            wire.RingState: self.merging.on_ring_state,
        }

    def _on_what_of_yield(self, sender: Peer, message: wire.WhatOfYield) -> None:
        if message.joiner.node == self._view.me.node:
            self.handshake.on_what_of_yield(sender, message)
        else:
            self.guardian.on_what_of_yield(sender, message)

    def on_round(self) -> list[Peer]:
        """Once a `lease_beat`; those that were asked for something that they answer at once."""
        view = self._view
        config = view.config
        view.agreed.awake_by = view.now + config.lease_beat_ns + config.paused_ns
        self.lapse.on_round()
        asked = self.leases.on_round()
        self.yielding.on_round()
        self.merging.on_round()
        view.agreed.stirred = True
        return asked

    def on_slept(self) -> None:
        """This node was asleep: it accuses nobody for a while, and what it had found out counts no more."""
        view = self._view
        view.agreed.awake_by = view.now + view.config.lease_beat_ns + view.config.paused_ns
        self.leases.on_slept()
        self.lapse.on_slept()
        self.gaps.on_slept()

    def consider(self) -> None:
        """Something has changed: a gap may now be closed, a joiner called."""
        agreed = self._view.agreed
        while agreed.stirred:
            agreed.stirred = False
            self.gaps.consider()
            self.guardian.consider()

    def violations(self) -> list[str]:
        """Of all that is agreed, and of what waits for an answer about it."""
        view = self._view
        found = [*view.agreed.violations(view.now), *self.guardian.violations(), *self.handshake.violations()]
        if view.agreed.closing is not None:
            found.extend(view.unguarded("close"))
        return found

    def stop(self) -> None:
        """Out of the ring."""
        self.guardian.dismiss()
        self.handshake.reset()
        for name in self.timers:
            self._view.cancel_timer(name)
