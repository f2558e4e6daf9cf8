"""`Node`: overlay and applications of one agent in one machine.

A step takes one event to the part that it concerns, then works off what the parts emitted: effects for the overlay and
messages to this node itself are taken within the same step, everything else goes to the driver. Timers are named
`("overlay", …)` or `("node", …)`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Received, Send, SetTimer, TimerFired
from agiledart_kernel.observe import Observer, ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.answering.other_nodes import OtherNodes
from agiledart_node.answering.users import Users
from agiledart_node.banning.spreading import TIMER as BANS_TIMER
from agiledart_node.desk.clock_book import Clocks
from agiledart_node.desk.config import NodeConfig
from agiledart_node.desk.desk import TellOverlay
from agiledart_node.hosting.hosted import Key
from agiledart_node.parts import Parts
from agiledart_node.records.signatures import VerifyOrder
from agiledart_node.records.sinks import FindSharers, FindSink, NoteSink
from agiledart_node.steering.self_scaling import TIMER as STEERING_TIMER
from agiledart_node.wire.events import (
    Asked,
    BansFound,
    BeRenewalDesk,
    ClockRead,
    InstanceFailed,
    InstanceFinished,
    InstancePrepared,
    InstanceReported,
    InstanceUnprepared,
    KeyMet,
    RenewMembership,
    RunsFound,
    TokenKnown,
)
from agiledart_node.wire.formation_messages import ROUTED_CODEC, Join, RouteProbe
from agiledart_node.wire.fragment_effects import FragmentOffered, FragmentStored
from agiledart_overlay.scribe.events import TopicMessage
from agiledart_overlay.wire.effects import (
    Delivered,
    Forwarding,
    Joined,
    NeighboursChanged,
    PeerFailed,
    PeerLeft,
    RecordAnswer,
)
from agiledart_overlay.wire.events import LeaveRing
from agiledart_recovery.wire.events import FragmentDamaged

_PATROL = ("node", "patrol")


class Node:
    """One agent's machine.

    Args:
        me: this node; its incarnation must be higher than in any earlier life.
        config: figures.
        random: for everything that this node draws.
        observe: told what happened.
        verify: judges signed orders; None in a world without keys, where everybody is believed.
        secret: that nobody else knows; keys come from it.
    """

    def __init__(
        self,
        me: Peer,
        config: NodeConfig,
        random: RandomStream,
        observe: Observer = ignore,
        verify: VerifyOrder | None = None,
        secret: bytes = b"",
    ) -> None:
        config.validate()
        self.me, self.config = me, config
        self.parts = parts = Parts(me, config, random, observe, verify, secret)
        self._desk, self.overlay = parts.desk, parts.desk.overlay
        self.recovering, self.schedulers, self.changes, self.steering = (
            parts.recovering,
            parts.schedulers,
            parts.changes,
            parts.steering,
        )
        self._users, self._other_nodes = Users(parts), OtherNodes(parts)
        self._is_patrolling, self._todo = False, deque[Event]()
        self._by_event, self._by_timer = self._event_table(), self._timer_table()

    def _event_table(self) -> dict[type, Callable[[Any], object]]:
        return {
            Received: self._other_nodes.received,
            TimerFired: self._timer_fired,
            Completed: self._driver_answered,
            Failed: self._driver_answered,
            Asked: self._users.asked,
            ClockRead: self._clock_read,
            InstanceReported: self.parts.hosting.reported,
            InstanceFinished: self.parts.hosting.finished,
            InstanceFailed: self.parts.watching.instance_failed,
            InstancePrepared: self.recovering.prepared,
            InstanceUnprepared: lambda event: self._desk.drop("unprepared"),
            RunsFound: self.recovering.found_on_disk,
            FragmentOffered: self.recovering.offered,
            FragmentStored: self.recovering.stored,
            FragmentDamaged: self.recovering.damaged,
            LeaveRing: self._leave,
            BansFound: lambda event: self.parts.banning.spreading.found(event.orders),
            KeyMet: self.parts.registering.met,
            BeRenewalDesk: self.parts.renewing.open,
            RenewMembership: self.parts.renewing.renew,
            TokenKnown: self.parts.registering.list_token,
            NoteSink: self.parts.sinks.note,
            FindSink: self.parts.sinks.find,
            FindSharers: self.parts.sinks.find_sharers,
        }

    def _timer_table(self) -> dict[object, Callable[[], None]]:
        return {
            _PATROL: self._patrol,
            STEERING_TIMER: self.steering.on_timer,
            BANS_TIMER: self.parts.banning.spreading.on_timer,
            **self.schedulers.by_timer,
        }

    @property
    def joined(self) -> bool:
        """Whether this node is a member of the ring."""
        return self.overlay.joined

    @property
    def hosted(self) -> tuple[Key, ...]:
        """(application, version) of everything that this node runs a part of or guards."""
        return tuple(self.parts.hosting.table)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Messages that the applications' side ignored, by reason; the overlay counts its own."""
        return self._desk.dropped

    @property
    def is_leaving(self) -> bool:
        """Whether this node was told to leave."""
        return self._desk.is_leaving

    @property
    def is_draining(self) -> bool:
        """Whether this node was told to take nothing."""
        return self._desk.is_draining

    @property
    def clocks(self) -> Clocks:
        """What is known of the clocks of this node and others."""
        return self._desk.clocks

    @property
    def soft_state_size(self) -> int:
        """JOIN states that this node remembers."""
        return len(self.parts.joining.soft_state.forwarders)

    def violations(self) -> list[str]:
        """What must hold of this node between any two steps and does not, in sentences; empty when all is well.

        The overlay judges itself, and so does each part of the node, by this node's own state alone; nothing changes.
        """
        found = self.parts.violations()
        if self._todo or self._desk.talks.effects:
            found.append("step: something that a step has done was not told")
        if self.joined and not self._is_patrolling:
            found.append("patrol: the node is in the ring, and looks after nothing")
        return [*self.overlay.violations(), *(f"{line} (at {self.me.name or self.me.node.short})" for line in found)]

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Take one event; return what the driver is to do, in order."""
        self._desk.talks.now = now
        out: list[Effect] = []
        self._todo.append(event)
        while self._todo:
            event = self._todo.popleft()
            handler = self._by_event.get(type(event))
            if handler is not None:
                handler(event)
            else:
                self._desk.tell_overlay(event)
            self._work_off(out)
        return out

    def _work_off(self, out: list[Effect]) -> None:
        """Effects of the parts: some stay inside, the rest goes to the driver."""
        effects = self._desk.talks.effects
        while effects:
            taken = effects[:]
            effects.clear()
            for effect in taken:
                if isinstance(effect, TellOverlay):
                    for of_overlay in self.overlay.step(effect.event, self._desk.now):
                        self._from_overlay(of_overlay, out)
                elif isinstance(effect, Send) and effect.to.node == self.me.node:
                    self._todo.append(Received(self.me, effect.message))
                else:
                    out.append(effect)

    def _from_overlay(self, effect: Effect, out: list[Effect]) -> None:
        if isinstance(effect, RecordAnswer):
            self._desk.talks.answered(effect.request, effect)
        elif isinstance(effect, Delivered | Forwarding):
            self._routed(effect)
        elif isinstance(effect, TopicMessage):
            self.schedulers.role.on_topic(effect)
        else:
            out.append(effect)
            if isinstance(effect, NeighboursChanged):
                self.parts.watching.check_lives()
                self.parts.banning.spreading.neighbours_changed()
                self.recovering.peers_changed()
                self.schedulers.neighbours_changed()
            elif isinstance(effect, PeerFailed | PeerLeft):
                self._desk.talks.gone(effect.peer)
                self._desk.clocks.forget(effect.peer.node)
                self._desk.others.pop(effect.peer.node, None)
                self.schedulers.peer_gone(effect.peer)
                self.recovering.peer_gone(effect.peer)
                self.parts.watching.peer_gone(effect.peer, effect.reason if isinstance(effect, PeerFailed) else "left")
            elif isinstance(effect, Joined):
                self._joined()

    def _joined(self) -> None:
        self._desk.talks.begin(self.parts.records.register(self.me))
        if not self._is_patrolling:
            self._is_patrolling = True
            self._set_patrol()

    def _set_patrol(self) -> None:
        self._desk.emit(SetTimer(_PATROL, Instant(self._desk.now + self.config.patrol_interval_ns)))

    def _routed(self, effect: Delivered | Forwarding) -> None:
        try:
            payload = ROUTED_CODEC.decode(effect.payload)
        except RemoteProtocolError as error:
            self._desk.drop(f"routed {error.reason}")
            return
        if isinstance(effect, Forwarding):
            if isinstance(payload, Join):
                self.parts.joining.forwarding(effect, payload)
        elif isinstance(payload, Join):
            self.parts.joining.delivered(effect, payload)
        elif isinstance(payload, RouteProbe):
            self.parts.questions.probed(effect, payload)

    def _timer_fired(self, event: TimerFired) -> None:
        name = event.name
        if isinstance(name, tuple) and len(name) == 2 and name[0] == "recovery":
            self.recovering.timer_fired(name[1])
        elif isinstance(name, tuple) and len(name) == 3 and name[0] == "node":
            self._desk.talks.timer(name)
        elif (action := self._by_timer.get(name)) is not None:
            action()
        else:
            self._desk.tell_overlay(event)

    def _patrol(self) -> None:
        self.parts.joining.soft_state.forget_old(self._desk.now)
        self.parts.watching.patrol()
        self.recovering.patrol()
        self.steering.look()
        self._set_patrol()

    def _clock_read(self, event: ClockRead) -> None:
        self._desk.read_clock(event.wall_ms)
        if self.joined and not self._desk.talks.is_full:
            self._desk.talks.begin(self.parts.surveying.compare_clocks())

    def _driver_answered(self, event: Completed | Failed) -> None:
        if not self._desk.talks.answered(event.request, event):
            self._desk.drop("late driver answer")

    def _leave(self, event: LeaveRing) -> None:
        if not self._desk.is_leaving:
            self._desk.is_leaving = True
            self._desk.talks.begin(self._leave_after_telling(event))

    async def _leave_after_telling(self, event: LeaveRing) -> None:
        await self.parts.draining.before_leaving()
        await self.parts.watching.leave()
        await self.schedulers.leave()
        self._desk.tell_overlay(event)
