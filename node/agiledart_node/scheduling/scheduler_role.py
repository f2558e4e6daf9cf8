"""A node as scheduler: the slot it holds, the applications it serves, and its advertisement.

Registration is a compare-and-set: the scheduler accepts while it has capacity, and otherwise refuses with a fresh advertisement.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Instant
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.scheduling.gossip import Gossip
from agiledart_node.scheduling.messages import Advertisement, Registration, SchedulerSlot
from agiledart_node.scheduling.observations import SchedulerElected, SchedulerResigned
from agiledart_overlay.scribe.events import JoinTopic, LeaveTopic, PublishTo, TopicMessage
from agiledart_overlay.scribe.messages import topic_id

CODEC: Codec[Advertisement] = Codec(Advertisement, limit=MAX_FRAME_BYTES)

ServedKey = tuple[str, int]
"""(application, version), or ("", ticket) of a submission that has no record yet."""


def topic_of(domain: str) -> NodeId:
    """Return the topic to which the schedulers of a domain subscribe; no node owns it."""
    return topic_id("schedulers", domain)


def _nothing() -> None:
    """Do nothing on a change; the default callback."""


@dataclass(slots=True)
class ServedApplication:
    """One application that this scheduler serves.

    Attributes:
        coordinator: the node that renews it; None while it is being deployed.
        last_seen: when it was last registered or renewed.
    """

    coordinator: Peer | None
    last_seen: Instant


class SchedulerRole:
    """This node's role as a scheduler.

    Attributes:
        scheduler_slot: the slot that it holds; None: it is no scheduler.
        served: applications by key, in order of registration.
        version: version of its advertisements; never decreases in an incarnation.
        state_version: grows with every change of the replicated state.
        idle_since: when its last application went; None while it has some.
        on_change: called after each change of the replicated state.
    """

    def __init__(self, context: NodeContext, gossip: Gossip) -> None:
        self._context, self._gossip = context, gossip
        self.scheduler_slot: SchedulerSlot | None = None
        self.served: dict[ServedKey, ServedApplication] = {}
        self.version = self.state_version = 0
        self.idle_since: Instant | None = None
        self.on_change: Callable[[], None] = _nothing
        gossip.renew = self.advertise

    @property
    def has_capacity(self) -> bool:
        """Return whether it would accept one more application."""
        return (
            self.scheduler_slot is not None
            and not self._context.is_leaving
            and len(self.served) < self._context.config.apps_per_scheduler
        )

    def advertisement(self) -> Advertisement | None:
        """Return its current advertisement; None when it is no scheduler."""
        if self.scheduler_slot is None:
            return None
        limit = 0 if self._context.is_leaving else self._context.config.apps_per_scheduler
        return Advertisement(self._context.me, self.scheduler_slot, self.version, len(self.served), limit)

    def registrations(self) -> tuple[Registration, ...]:
        """Return the registrations that are replicated to leaves."""
        return tuple(
            Registration(name, number, served.coordinator) for (name, number), served in self.served.items() if name
        )

    def take_scheduler_slot(self, scheduler_slot: SchedulerSlot) -> None:
        """Become a scheduler."""
        self.scheduler_slot = scheduler_slot
        self.idle_since = self._context.now
        self._context.observe(SchedulerElected(scheduler_slot.domain, scheduler_slot.index, scheduler_slot.term))
        self._context.deliver_to_overlay(JoinTopic(topic_of(scheduler_slot.domain)))
        self.advertise()
        self._publish()

    def leave_scheduler_slot(self, reason: str) -> None:
        """Stop being a scheduler, and forget the served applications."""
        scheduler_slot, advertisement = self.scheduler_slot, self.advertisement()
        if scheduler_slot is None or advertisement is None:
            return
        self.scheduler_slot = None
        self.served.clear()
        self.version += 1
        self._context.observe(SchedulerResigned(scheduler_slot.domain, scheduler_slot.index, reason))
        last = Advertisement(advertisement.scheduler, scheduler_slot, self.version, 0, 0, resigned=True)
        self._gossip.take(last)
        self._context.deliver_to_overlay(PublishTo(topic_of(scheduler_slot.domain), CODEC.encode(last)))
        self._context.deliver_to_overlay(LeaveTopic(topic_of(scheduler_slot.domain)))

    def advertise(self) -> None:
        """Make a new version of the advertisement, if this node holds a slot. Gossip spreads it, at once if it is news."""
        if self.scheduler_slot is None:
            return
        self.version += 1
        advertisement = self.advertisement()
        if advertisement is not None:
            self._gossip.take(advertisement)

    def register(self, served_key: ServedKey, coordinator: Peer | None) -> bool:
        """Accept one more application, or one that is registered already. Return False without capacity."""
        served = self.served.get(served_key)
        if served is not None:
            served.last_seen = self._context.now
            served.coordinator = coordinator or served.coordinator
            return True
        if not self.has_capacity:
            return False
        self.served[served_key] = ServedApplication(coordinator, self._context.now)
        self._changed()
        return True

    def release(self, served_key: ServedKey) -> bool:
        """Release an application. Return False when it was not served."""
        if self.served.pop(served_key, None) is None:
            return False
        self._changed()
        return True

    def rename(self, served_key: ServedKey, new: ServedKey) -> None:
        """Store a submission under its record's key, now that it has a record."""
        served = self.served.pop(served_key, None)
        if served is not None:
            self.served[new] = served
            self._state_changed()

    def set_coordinator(self, served_key: ServedKey, coordinator: Peer) -> None:
        """Set the coordinator of a submission that runs, which renews it from now on."""
        served = self.served.get(served_key)
        if served is not None:
            served.coordinator = coordinator
            served.last_seen = self._context.now
            self._state_changed()

    def _state_changed(self) -> None:
        self.state_version += 1
        self.on_change()

    def _changed(self) -> None:
        self._state_changed()
        self.idle_since = None if self.served else self._context.now
        known = self._gossip.known_of(self._context.me.node)
        if known is None or known.has_capacity != self.has_capacity:
            self.advertise()
            self._publish()

    def _publish(self) -> None:
        """Publish the advertisement to the domain's topic, which reaches schedulers that gossip does not."""
        advertisement = self.advertisement()
        if advertisement is not None:
            self._context.deliver_to_overlay(
                PublishTo(topic_of(advertisement.scheduler_slot.domain), CODEC.encode(advertisement))
            )

    def on_topic(self, message: TopicMessage) -> None:
        """Learn the advertisement of another scheduler of the domain."""
        try:
            advertisement = CODEC.decode(message.payload)
        except RemoteProtocolError as error:
            self._context.drop(f"topic {error.reason}")
            return
        if advertisement.scheduler.node == message.origin.node != self._context.me.node:
            self._gossip.take(advertisement)

    def violations(self) -> list[str]:
        """Return violated invariants: only a slot's holder serves, within its limit; it is idle exactly when it serves none."""
        if self.scheduler_slot is None:
            return ["scheduler slot: applications are served without one"] if self.served else []
        most = self._context.config.apps_per_scheduler
        lines = [f"sc_2: {len(self.served)} applications are served, at most {most}"] if len(self.served) > most else []
        if (self.idle_since is None) != bool(self.served):
            lines.append(f"scheduler slot: {len(self.served)} applications are served, idle since {self.idle_since}")
        return lines
