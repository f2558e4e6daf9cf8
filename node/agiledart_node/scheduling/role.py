"""A node as scheduler: the office it holds, the applications it serves, and what it says of itself.

Registration is a compare-and-set here: one more while there is room, else a refusal with a fresh advertisement.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import Instant
from agiledart_kernel.limits import MAX_FRAME_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.desk.desk import Desk
from agiledart_node.scheduling.gossip import Gossip
from agiledart_node.scheduling.messages import Advertisement, Line, Office
from agiledart_node.scheduling.observations import SchedulerElected, SchedulerResigned
from agiledart_overlay.scribe.events import JoinTopic, LeaveTopic, PublishTo, TopicMessage
from agiledart_overlay.scribe.messages import topic_id

CODEC: Codec[Advertisement] = Codec(Advertisement, limit=MAX_FRAME_BYTES)

Slot = tuple[str, int]
"""(application, version), or ("", ticket) of a submission that has no record yet."""


def topic_of(domain: str) -> NodeId:
    """The topic to which the schedulers of a domain subscribe; nobody owns it."""
    return topic_id("schedulers", domain)


def _nothing() -> None:
    """Nobody wants to know of changes."""


@dataclass(slots=True)
class Served:
    """One application that this scheduler serves.

    Attributes:
        coordinator: who renews it; None while it is being deployed.
        heard_at: when it was last registered or renewed.
    """

    coordinator: Peer | None
    heard_at: Instant


class Role:
    """What this node is as a scheduler.

    Attributes:
        office: the place it holds; None: it is no scheduler.
        served: applications by slot, in the order in which they came.
        version: of its advertisements; never goes back in a life.
        state_version: grows with every change of what it would leave behind.
        idle_since: when its last application went; None while it has some.
        on_change: called after each change of what it would leave behind.
    """

    def __init__(self, desk: Desk, gossip: Gossip) -> None:
        self._desk, self._gossip = desk, gossip
        self.office: Office | None = None
        self.served: dict[Slot, Served] = {}
        self.version = self.state_version = 0
        self.idle_since: Instant | None = None
        self.on_change: Callable[[], None] = _nothing
        gossip.renew = self.tell

    @property
    def has_room(self) -> bool:
        """Whether one more would be taken."""
        return (
            self.office is not None
            and not self._desk.is_leaving
            and len(self.served) < self._desk.config.apps_per_scheduler
        )

    def advertisement(self) -> Advertisement | None:
        """What it says of itself now."""
        if self.office is None:
            return None
        limit = 0 if self._desk.is_leaving else self._desk.config.apps_per_scheduler
        return Advertisement(self._desk.me, self.office, self.version, len(self.served), limit)

    def lines(self) -> tuple[Line, ...]:
        """What it would leave behind."""
        return tuple(Line(name, number, served.coordinator) for (name, number), served in self.served.items() if name)

    def take_office(self, office: Office) -> None:
        """From now on this node is a scheduler."""
        self.office = office
        self.idle_since = self._desk.now
        self._desk.observe(SchedulerElected(office.domain, office.index, office.term))
        self._desk.tell_overlay(JoinTopic(topic_of(office.domain)))
        self.tell()
        self._publish()

    def leave_office(self, reason: str) -> None:
        """From now on it is none; what it served is forgotten."""
        office, told = self.office, self.advertisement()
        if office is None or told is None:
            return
        self.office = None
        self.served.clear()
        self.version += 1
        self._desk.observe(SchedulerResigned(office.domain, office.index, reason))
        last = Advertisement(told.scheduler, office, self.version, 0, 0, resigned=True)
        self._gossip.take(last)
        self._desk.tell_overlay(PublishTo(topic_of(office.domain), CODEC.encode(last)))
        self._desk.tell_overlay(LeaveTopic(topic_of(office.domain)))

    def tell(self) -> None:
        """Make a new version of its advertisement, if it holds an office; gossip passes it on, at once if it is news."""
        if self.office is None:
            return
        self.version += 1
        told = self.advertisement()
        if told is not None:
            self._gossip.take(told)

    def register(self, slot: Slot, coordinator: Peer | None) -> bool:
        """Take one more, or know it already."""
        served = self.served.get(slot)
        if served is not None:
            served.heard_at = self._desk.now
            served.coordinator = coordinator or served.coordinator
            return True
        if not self.has_room:
            return False
        self.served[slot] = Served(coordinator, self._desk.now)
        self._changed()
        return True

    def release(self, slot: Slot) -> bool:
        """One is gone; false when it was not served."""
        if self.served.pop(slot, None) is None:
            return False
        self._changed()
        return True

    def rename(self, slot: Slot, new: Slot) -> None:
        """A submission has got its record."""
        served = self.served.pop(slot, None)
        if served is not None:
            self.served[new] = served
            self._noted()

    def settle(self, slot: Slot, coordinator: Peer) -> None:
        """A submission runs: its coordinator renews it from now on."""
        served = self.served.get(slot)
        if served is not None:
            served.coordinator = coordinator
            served.heard_at = self._desk.now
            self._noted()

    def _noted(self) -> None:
        self.state_version += 1
        self.on_change()

    def _changed(self) -> None:
        self._noted()
        self.idle_since = None if self.served else self._desk.now
        told = self._gossip.known_of(self._desk.me.node)
        if told is None or told.has_room != self.has_room:
            self.tell()
            self._publish()

    def _publish(self) -> None:
        """Tell the other schedulers of the domain by its topic: they hear of it also where gossip does not reach."""
        told = self.advertisement()
        if told is not None:
            self._desk.tell_overlay(PublishTo(topic_of(told.office.domain), CODEC.encode(told)))

    def on_topic(self, message: TopicMessage) -> None:
        """Another scheduler of the domain has news."""
        try:
            advertisement = CODEC.decode(message.payload)
        except RemoteProtocolError as error:
            self._desk.drop(f"topic {error.reason}")
            return
        if advertisement.scheduler.node == message.origin.node != self._desk.me.node:
            self._gossip.take(advertisement)

    def violations(self) -> list[str]:
        """Only who holds an office serves, at most so many applications; who serves nobody is idle."""
        if self.office is None:
            return ["office: applications are served without one"] if self.served else []
        most = self._desk.config.apps_per_scheduler
        found = [f"sc_2: {len(self.served)} applications are served, at most {most}"] if len(self.served) > most else []
        if (self.idle_since is None) != bool(self.served):
            found.append(f"office: {len(self.served)} applications are served, idle since {self.idle_since}")
        return found
