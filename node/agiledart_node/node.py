"""State machine of one agent: overlay and applications of one node.

A step passes one event to the part that it concerns, then processes what the parts emitted. Effects for the overlay and messages
to this node itself are handled within the same step; everything else goes to the driver. Timers are named `("overlay", …)` or
`("node", …)`.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Received, Send, SetTimer, TimerFired
from agiledart_kernel.observation import Observer, ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.autoscaling.autoscaler import TIMER as AUTOSCALING_TIMER
from agiledart_node.autoscaling.mopa_hosting import TIMER as MOPA_TIMER
from agiledart_node.autoscaling.replacement_service import TIMER as PLACEMENT_TIMER
from agiledart_node.banning.ban_gossip import TIMER as BANS_TIMER
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.node_context import DeliverToOverlay
from agiledart_node.context.peer_clocks import PeerClocks
from agiledart_node.handlers.command_handlers import CommandHandlers
from agiledart_node.handlers.message_handlers import MessageHandlers
from agiledart_node.hosting.hosted_application import Key
from agiledart_node.node_parts import NodeParts
from agiledart_node.records.signatures import VerifyCommand
from agiledart_node.records.sink_directory import FindSharers, FindSink, RegisterSink
from agiledart_node.wire.events import (
    BansFound,
    ClockRead,
    EnableRenewalService,
    EndedRecordsFound,
    InstanceFailed,
    InstanceFinished,
    InstancePrepared,
    InstanceReported,
    InstanceUnprepared,
    KeyPresented,
    RenewMembership,
    RunsFound,
    TokenKnown,
    UserCallPending,
    UserRequest,
)
from agiledart_node.wire.formation_messages import ROUTED_CODEC, Join, RouteProbe
from agiledart_node.wire.fragment_effects import FragmentOffered, FragmentStored
from agiledart_node.wire.log_list_messages import FindLogs
from agiledart_overlay.scribe.events import TopicMessage
from agiledart_overlay.wire.effects import (
    Delivered,
    Forwarding,
    JoinCompleted,
    NeighboursChanged,
    PeerFailed,
    PeerLeft,
    RecordAnswer,
)
from agiledart_overlay.wire.events import LeaveRing, SetReachability
from agiledart_recovery.wire.events import FragmentDamaged

_PATROL = ("node", "patrol")

_FOR_PARTS = (RecordAnswer, Delivered, Forwarding, TopicMessage)
"""Effects of the overlay that stay inside the node."""


class Node:
    """State machine of one agent.

    Args:
        me: this node; its incarnation must be higher than every earlier one.
        config: limits, intervals and timeouts.
        random: source of all random draws of this node.
        observe: callback for observations.
        verify: verifies signed commands; None in a world without keys, where every requester is trusted.
        secret: known to this node only; keys are derived from it.
    """

    def __init__(
        self,
        me: Peer,
        config: NodeConfig,
        random: RandomStream,
        observe: Observer = ignore,
        verify: VerifyCommand | None = None,
        secret: bytes = b"",
    ) -> None:
        config.validate()
        self.me, self.config = me, config
        self.parts = parts = NodeParts(me, config, random, observe, verify, secret)
        self._context, self.overlay = parts.context, parts.context.overlay
        self.recovery_service, self.schedulers, self.changes, self.autoscaler = (
            parts.recovery_service,
            parts.schedulers,
            parts.changes,
            parts.autoscaler,
        )
        self._command_handlers, self._message_handlers = CommandHandlers(parts), MessageHandlers(parts)
        self._is_patrolling, self._todo = False, deque[Event]()
        self._out: list[Effect] = []
        """Effects for the driver. A step that ends by a bug leaves them to the next one, or the node would lose its timers."""
        self._by_event, self._by_timer = self._event_table(), self._timer_table()

    def _event_table(self) -> dict[type, Callable[[Any], object]]:
        return {
            Received: self._message_handlers.received,
            TimerFired: self._timer_fired,
            Completed: self._driver_answered,
            Failed: self._driver_answered,
            UserRequest: self._command_handlers.asked,
            ClockRead: self._clock_read,
            InstanceReported: self.parts.hosting.reported,
            UserCallPending: self.parts.hosting.call_pending,
            InstanceFinished: self.parts.hosting.finished,
            InstanceFailed: self.parts.watching.instance_failed,
            InstancePrepared: self.recovery_service.prepared,
            InstanceUnprepared: lambda event: self._context.drop("unprepared"),
            RunsFound: self.recovery_service.found_on_disk,
            FragmentOffered: self.recovery_service.offered,
            FragmentStored: self.recovery_service.stored,
            FragmentDamaged: self.recovery_service.damaged,
            EndedRecordsFound: self.parts.ended_records.load,
            LeaveRing: self._leave,
            BansFound: lambda event: self.parts.banning.spreading.on_bans_found(event.signed_commands),
            KeyPresented: self.parts.registering.met,
            EnableRenewalService: self.parts.renewing.open,
            RenewMembership: self.parts.renewing.renew,
            TokenKnown: self.parts.registering.list_token,
            RegisterSink: self.parts.sinks.note,
            FindSink: self.parts.sinks.find,
            FindSharers: self.parts.sinks.find_sharers,
            FindLogs: self.parts.log_lists.find,
            SetReachability: self._set_reachability,
        }

    def _timer_table(self) -> dict[object, Callable[[], None]]:
        return {
            _PATROL: self._patrol,
            AUTOSCALING_TIMER: self.autoscaler.on_timer,
            PLACEMENT_TIMER: self.parts.replacement_service.on_timer,
            MOPA_TIMER: self.parts.mopa_hosting.on_timer,
            BANS_TIMER: self.parts.banning.spreading.on_timer,
            **self.schedulers.by_timer,
        }

    @property
    def joined(self) -> bool:
        """Return whether this node is a member of the ring."""
        return self.overlay.joined

    @property
    def hosted(self) -> tuple[Key, ...]:
        """Return (application, version) of everything that this node runs a part of or guards."""
        return tuple(self.parts.hosting.table)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Return how many messages the applications' side ignored, by reason; the overlay counts its own."""
        return self._context.dropped

    @property
    def is_leaving(self) -> bool:
        """Return whether this node is leaving the ring."""
        return self._context.is_leaving

    @property
    def is_draining(self) -> bool:
        """Return whether this node accepts no work, because it is being drained."""
        return self._context.is_draining

    @property
    def clocks(self) -> PeerClocks:
        """Return what is known about the clocks of this node and its peers."""
        return self._context.clocks

    @property
    def soft_state_size(self) -> int:
        """Return the number of JOIN states that this node remembers."""
        return len(self.parts.joining.soft_state.forwarders)

    def violations(self) -> list[str]:
        """Return the invariants that must hold between any two steps and do not, in sentences; empty when all hold.

        The overlay and each part of the node check their own state only; nothing changes.
        """
        lines = self.parts.violations()
        if self._todo or self._out or self._context.requests.effects:
            lines.append("step: events or effects of a step were not processed")
        if self.joined and not self._is_patrolling:
            lines.append("patrol: the node is in the ring, and no patrol is scheduled")
        return [*self.overlay.violations(), *(f"{line} (at {self.me.name or self.me.node.short})" for line in lines)]

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Process one event. Return the effects that the driver must carry out, in order."""
        self._context.requests.now = now
        self._todo.append(event)
        while self._todo:
            event = self._todo.popleft()
            handler = self._by_event.get(type(event))
            if handler is not None:
                handler(event)
            else:
                self._context.deliver_to_overlay(event)
            self._process_effects()
        out, self._out = self._out, []
        return out

    def _process_effects(self) -> None:
        """Process the effects of the parts: some stay inside the node, the rest goes to the driver."""
        effects = self._context.requests.effects
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, DeliverToOverlay):
                of_overlay = self.overlay.step(effect.event, self._context.now)
                self._out += [of_ring for of_ring in of_overlay if not isinstance(of_ring, _FOR_PARTS)]
                for of_ring in of_overlay:
                    self._from_overlay(of_ring)
            elif isinstance(effect, Send) and effect.to.node == self.me.node:
                self._todo.append(Received(self.me, effect.message))
            else:
                self._out.append(effect)

    def _from_overlay(self, effect: Effect) -> None:
        if isinstance(effect, RecordAnswer):
            self._context.requests.resolve(effect.request, effect)
        elif isinstance(effect, Delivered | Forwarding):
            self._routed(effect)
        elif isinstance(effect, TopicMessage):
            self.schedulers.role.on_topic(effect)
        elif isinstance(effect, NeighboursChanged):
            self.parts.watching.check_incarnations()
            self.parts.banning.spreading.neighbours_changed()
            self.recovery_service.peers_changed()
            self.schedulers.neighbours_changed()
        elif isinstance(effect, PeerFailed | PeerLeft):
            self._context.requests.peer_gone(effect.peer)
            self._context.clocks.forget(effect.peer.node)
            self._context.incompatible_nodes.pop(effect.peer.node, None)
            self.schedulers.peer_gone(effect.peer)
            self.recovery_service.peer_gone(effect.peer)
            self.parts.watching.peer_gone(effect.peer, effect.reason if isinstance(effect, PeerFailed) else "left")
        elif isinstance(effect, JoinCompleted):
            self._joined()

    def _set_reachability(self, event: SetReachability) -> None:
        self.me = self._context.me = self.me.with_reach(event.reach, event.address)
        self._context.deliver_to_overlay(event)

    def _joined(self) -> None:
        self._context.requests.begin(self.parts.records.register(self.me))
        if not self._is_patrolling:
            self._is_patrolling = True
            self._set_patrol()

    def _set_patrol(self) -> None:
        self._context.emit(SetTimer(_PATROL, Instant(self._context.now + self.config.patrol_interval_ns)))

    def _routed(self, effect: Delivered | Forwarding) -> None:
        try:
            payload = ROUTED_CODEC.decode(effect.payload)
        except RemoteProtocolError as error:
            self._context.drop(f"routed {error.reason}")
            return
        if isinstance(effect, Forwarding):
            if isinstance(payload, Join):
                self.parts.joining.forwarding(effect, payload)
        elif isinstance(payload, Join):
            self.parts.joining.delivered(effect, payload)
        elif isinstance(payload, RouteProbe):
            self.parts.node_queries.probed(effect, payload)

    def _timer_fired(self, event: TimerFired) -> None:
        name = event.name
        if isinstance(name, tuple) and len(name) == 2 and name[0] == "recovery":
            self.recovery_service.timer_fired(name[1])
        elif isinstance(name, tuple) and len(name) == 3 and name[0] == "node":
            self._context.requests.timer(name)
        elif (action := self._by_timer.get(name)) is not None:
            action()
        else:
            self._context.deliver_to_overlay(event)

    def _patrol(self) -> None:
        self.parts.joining.soft_state.forget_old(self._context.now)
        self.parts.watching.patrol()
        self.recovery_service.patrol()
        self.parts.ended_records.patrol()
        self.parts.lease_keeper.patrol()
        self.autoscaler.look()
        self.parts.path_renewal.look()
        self.parts.replacement_service.look()
        if self.joined and not self._context.requests.is_full:
            self._context.requests.begin(self.parts.learn_labels())
        self.parts.mopa_hosting.look()
        self._set_patrol()

    def _clock_read(self, event: ClockRead) -> None:
        self._context.read_clock(event.wall_ms)
        if self.joined and not self._context.requests.is_full:
            self._context.requests.begin(self.parts.surveying.compare_clocks())

    def _driver_answered(self, event: Completed | Failed) -> None:
        if not self._context.requests.resolve(event.request, event):
            self._context.drop("late driver answer")

    def _leave(self, event: LeaveRing) -> None:
        if not self._context.is_leaving:
            self._context.is_leaving = True
            self._context.requests.begin(self._drain_and_leave(event))

    async def _drain_and_leave(self, event: LeaveRing) -> None:
        await self.parts.node_drain.before_leaving()
        await self.parts.watching.leave()
        await self.schedulers.leave()
        self._context.deliver_to_overlay(event)
