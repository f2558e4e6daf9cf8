"""`OverlayMachine`: one node's part in the ring: membership, liveness, repair, router, directory and topic trees."""

from collections.abc import Callable, Iterable
from typing import Any

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Effect, Event, LinkLost, Received, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import Observer, ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.inspection import Inspection
from agiledart_overlay.join.membership import Membership, Phase
from agiledart_overlay.join.node_arrival import NodeArrival
from agiledart_overlay.liveness.failure_detector import FailureDetector
from agiledart_overlay.liveness.incarnations import Incarnations
from agiledart_overlay.liveness.peer_gossip import PeerGossip
from agiledart_overlay.peer_message_dispatcher import PeerMessageDispatcher
from agiledart_overlay.records.record_directory import RecordDirectory
from agiledart_overlay.records.record_store import Merge, by_rank
from agiledart_overlay.ring.neighbours import Neighbours
from agiledart_overlay.routing.repair import Repair
from agiledart_overlay.routing.router import Router
from agiledart_overlay.scribe.scribe import Scribe
from agiledart_overlay.state.agreement import FOREVER
from agiledart_overlay.state.view import View
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire import ring_messages
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.effects import LeaveCompleted, NeighboursChanged
from agiledart_overlay.wire.events import (
    JoinRing,
    LeaveRing,
    ReadRecord,
    RouteMessage,
    SetCongestion,
    SetLoad,
    SetReachability,
    StoreRecord,
    UnwatchPeer,
    WatchPeer,
)

_LEAVE_POLL_SHARE = 20
"""While leaving, the node checks its hand-over this many times within the timeout."""


class OverlayMachine(Inspection):
    """One node's part in the ring: takes events, returns effects. Its timers are named `("overlay", …)`.

    Args:
        me: this node; its incarnation must be higher than in any earlier incarnation.
        config: figures; the first three must be equal on all nodes.
        random: for the order of probes and the choice of helpers.
        observe: called with each observation.
        merge: merges two values of one record.
    """

    __slots__ = (
        "_arrival",
        "_events",
        "_incarnations",
        "_leave_by",
        "_liveness",
        "_membership",
        "_messages",
        "_neighbours",
        "_peer_messages",
        "_repair",
        "_timers",
        "scribe",
    )  # fmt: skip

    def __init__(
        self,
        me: Peer,
        config: OverlayConfig,
        random: RandomStream,
        observe: Observer = ignore,
        merge: Merge = by_rank,
    ) -> None:
        config.validate()
        view = View(me, config, random, observe)
        peer_gossip = PeerGossip(view)
        self._arrival = NodeArrival(view, peer_gossip)
        self._neighbours = Neighbours(view)
        self._membership = Membership(view, self._arrival, self._neighbours)
        self._liveness = FailureDetector(view)
        self._repair = Repair(view, peer_gossip)
        super().__init__(view, Router(view, self._liveness.checks), RecordDirectory(view, merge))
        self._incarnations = Incarnations(view, self._liveness.checks)
        self._peer_messages = PeerMessageDispatcher(
            view, peer_gossip, self._arrival, self._neighbours, self._membership, self._liveness, self._repair
        )
        self.scribe = Scribe(view)
        self._leave_by: int | None = None
        self._events: dict[type, Callable[[Any], None]] = {
            TimerFired: self._on_timer,
            LinkLost: lambda event: self._liveness.checks.on_link_lost(event.node, refused=event.refused),
            JoinRing: lambda event: self._membership.join(event.seeds),
            LeaveRing: self._on_leave_ring,
            RouteMessage: lambda event: self._router.route(event.key, event.payload),
            StoreRecord: lambda event: self._directory.client.store(event),
            ReadRecord: lambda event: self._directory.client.read(event),
            WatchPeer: self._on_watch,
            UnwatchPeer: self._on_unwatch,
            SetLoad: lambda event: self._view.distances.set_load(event.load_permille),
            SetCongestion: lambda event: self._view.distances.set_congestion(event.node, event.congestion_permille),
            SetReachability: self._on_reachability,
            **self.scribe.events(),
        }
        self._timers: dict[str, Callable[[], None]] = {
            "round": self._on_round,
            "checks": self._liveness.checks.on_checks,
            "join": self._membership.on_join_timer,
            "nearer": self._membership.search.bootstrap.on_timer,
            "announce": self._arrival.on_timer,
            "arrive": self._arrival.on_stage_timer,
            **self._neighbours.timers,
            **self.scribe.timers,
            "exchange": lambda: self._repair.on_exchange(self._membership.seeds),
            "mend": self._repair.on_mend,
            "hops": self._router.on_hops_timer,
            "requests": self._directory.client.on_timer,
            "roots": self._directory.on_roots_timer,
            "sync": self._directory.copies.on_sync_timer,
            "leave": self._on_leave_timer,
        }
        self._messages = self._message_table()

    def _message_table(self) -> dict[type, Callable[[Peer, Any], None]]:
        liveness, repair, directory, membership = self._liveness, self._repair, self._directory, self._membership
        return {
            **self._neighbours.messages(),
            **self._peer_messages.messages(),
            **self.scribe.messages(),
            ring_messages.JoinQueued: membership.on_queued,
            ring_messages.AdmissionConfirmed: membership.on_admission_confirmed,
            ring_messages.RequestRingCreation: membership.on_request_ring_creation,
            ring_messages.RingCreationReply: membership.on_ring_creation_reply,
            wire.JoinRows: membership.search.on_rows,
            wire.JoinRefused: membership.on_refused,
            wire.LeafRequest: repair.on_leaf_request,
            wire.LeafDigest: repair.on_leaf_digest,
            wire.NeighbourRequest: repair.on_neighbour_request,
            wire.IndirectProbe: liveness.on_indirect_probe,
            wire.IndirectProbeAck: liveness.on_indirect_probe_ack,
            wire.Suspect: liveness.on_suspect,
            wire.ConfirmSuspicion: liveness.on_confirm,
            wire.DeclaredFailed: liveness.on_declared_failed,
            wire.RowRequest: repair.on_row_request,
            wire.RowState: repair.on_row_state,
            wire.RouteHop: self._router.on_route,
            wire.RouteAck: self._router.on_ack,
            wire.RecordWrite: lambda _, message: directory.dispatch(message),
            wire.RecordRead: lambda _, message: directory.dispatch(message),
            wire.RecordReply: lambda _, message: directory.client.on_reply(message),
            wire.RecordCopy: directory.on_copy,
            wire.RecordHeld: directory.on_held,
            wire.RecordFetch: directory.copies.on_fetch,
            wire.RecordOffer: directory.copies.on_offer,
        }

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Take one event; return the effects in order."""
        view = self._view
        agreed = view.agreed
        view.now = now
        was_joined = view.joined
        handler = self._on_received if type(event) is Received else self._events.get(type(event))
        if handler is None:
            view.drop("event")
            return []
        if now > agreed.wake_deadline and was_joined:
            self._neighbours.on_slept()
        handler(event)
        if (
            agreed.has_changed
            or view.loopback_messages
            or agreed.rejoin_reason is not None
            or agreed.expel_reason is not None
        ):
            self._go_on()
        if view.joined and not was_joined:
            self._liveness.start()
            self._repair.start()
            if self._leave_by is not None:
                self._directory.copies.hand_over()
        if view.gone or view.leaves_changed or view.refilled:
            self._propagate_changes()
        # The machine keeps no reference to the effects: they are freed while still in the cache, not a step of this node later.
        effects, view.effects = view.effects, []
        return effects

    def _go_on(self) -> None:
        """Carry out the consequences of this step in the agreed ring."""
        view = self._view
        agreed = view.agreed
        while True:
            if agreed.has_changed:
                self._neighbours.consider()
            if agreed.expel_reason is not None:
                self._expel(agreed.expel_reason)
            if agreed.rejoin_reason is not None:
                self._rejoin()
            if not view.loopback_messages:
                return
            message = view.loopback_messages.pop(0)
            self._messages[type(message)](view.me, message)

    def _expel(self, reason: str) -> None:
        agreed = self._view.agreed
        agreed.expel_reason = agreed.rejoin_reason = agreed.through = None
        self._leave_by = None
        self._membership.expel(reason)
        self._stop()

    def _rejoin(self) -> None:
        agreed = self._view.agreed
        reason, through = agreed.rejoin_reason, agreed.through
        agreed.rejoin_reason = agreed.through = None
        assert reason is not None
        self._liveness.stop()
        self._repair.stop()
        self._directory.forget_confirmations()
        self._membership.rejoin(reason, through)

    def _propagate_changes(self) -> None:
        """Tell every part of the changes of this step."""
        view = self._view
        gone, view.gone = view.gone, []
        refilled, view.refilled = view.refilled, []
        for node in refilled:
            self._liveness.checks.doubt(node)
        if gone:
            self._neighbours.leases.look_for_dead()
            self._repair.on_gone(gone)
            self._router.on_gone(gone)
            self.scribe.on_gone(gone)
            self._go_on()
        if view.leaves_changed:
            view.leaves_changed = False
            view.effects.append(NeighboursChanged())
            self._router.on_change()
            self._directory.on_leaves_changed(gone)
            self.scribe.on_leaves_changed(gone)

    def violations(self) -> list[str]:
        """Return violated invariants of this node between two steps, as sentences; empty when all is well.

        Each part checks its own state, by this node's clock alone; nothing changes. For tests and simulators, after each step or
        now and then: it costs as much as some ten steps.
        """
        view = self._view
        parts = (view, self._membership, self._liveness, self._repair, self._router, self._directory, self.scribe)
        complaints = [line for part in parts for line in part.violations()]
        if view.effects or view.loopback_messages or view.gone or view.leaves_changed:
            complaints.append("step: a change of a step was not propagated")
        if self._leave_by is not None:
            complaints.extend(view.missing_timer("leave"))
        return [f"{line} (at {view.me.node.short})" for line in complaints]

    def adopt(self, peers: Iterable[Peer], now: Instant) -> None:
        """Put members into the tables without contact, for simulations that begin with a finished ring. No timer is set."""
        view = self._view
        view.now = now
        for peer in peers:
            view.meet(peer, 0)
        view.joined = True
        self._membership.phase = Phase.MEMBER
        agreed = view.agreed
        agreed.create_ring(now)
        for side, leaf in (
            (agreed.predecessor, view.leaf_set.predecessor),
            (agreed.successor, view.leaf_set.successor),
        ):
            if leaf is not None:
                side.confirm_neighbour(leaf, now, FOREVER, 0)
        agreed.name = (0, NodeId(0))
        agreed.has_changed = view.leaves_changed = False

    # ---- timers and commands

    def _on_timer(self, event: TimerFired) -> None:
        name = event.name
        if not (isinstance(name, tuple) and len(name) == 2 and name[0] == "overlay"):
            self._view.drop("timer")
            return
        late_ns = self._view.take_timer(name[1])
        if late_ns is None:
            return
        self._liveness.checks.on_late(late_ns)
        if name[1] == "round" and late_ns <= self._view.config.late_ns:
            self._liveness.checks.on_time()
        self._timers[name[1]]()

    def _on_round(self) -> None:
        if self._view.joined:
            self._liveness.on_round(self._neighbours.on_round())

    def _on_watch(self, event: WatchPeer) -> None:
        view = self._view
        peer = event.peer
        if peer.node == view.me.node:
            return
        if len(view.watched) >= view.config.max_watched and peer.node not in view.watched:
            view.drop("watch-full")
            return
        view.watched[peer.node] = peer
        known = view.book.get(peer.node)
        if known is None and not view.book.is_dead(peer, 0):
            view.book.meet(peer, 0, view.now)
            self._liveness.checks.doubt(peer.node)

    def _on_reachability(self, event: SetReachability) -> None:
        self._view.me = self._view.me.with_reach(event.reach, event.address)

    def _on_unwatch(self, event: UnwatchPeer) -> None:
        self._view.watched.pop(event.node, None)

    def _on_leave_ring(self, _event: LeaveRing) -> None:
        view = self._view
        if not view.joined:
            self._membership.abandon()
            view.effects.append(LeaveCompleted())
        elif self._leave_by is None:
            self._leave_by = view.now + view.config.leave_timeout_ns
            self._directory.copies.hand_over()
            self._on_leave_timer()

    def _on_leave_timer(self) -> None:
        """Leave when no change is pending any more, or the time is over.

        A node that had to rejoin meanwhile first becomes a member once more: its records may exist on no other node.
        """
        view = self._view
        if self._leave_by is None:
            return
        is_ready = view.joined and self._directory.copies.is_handed_over and not view.agreed.is_pending
        if view.now < self._leave_by and not is_ready:
            view.set_timer("leave", view.now + view.config.leave_timeout_ns // _LEAVE_POLL_SHARE)
            return
        self._leave_by = None
        if view.joined:
            self._membership.leave(is_clean=not view.agreed.is_pending)
        else:
            self._membership.abandon()
            view.effects.append(LeaveCompleted())
        self._stop()

    def _stop(self) -> None:
        """Stop all parts: this node is out of the ring for good."""
        self._liveness.stop()
        self._repair.stop()
        self._router.stop()
        self._directory.stop()
        self.scribe.stop()

    # ---- messages

    def _on_received(self, event: Any) -> None:
        view = self._view
        sender, message = event.sender, event.message
        kind = type(message)
        handler = self._messages.get(kind)
        if handler is None or sender.node == view.me.node:
            view.drop("message")
            return
        self._received[kind] = self._received.get(kind, 0) + 1
        if self._incarnations.accepts(sender, message):
            handler(sender, message)
