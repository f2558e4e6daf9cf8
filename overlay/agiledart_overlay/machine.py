"""`OverlayMachine`: one node's part in the ring."""

from collections.abc import Callable

from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.machine import Effect, Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observe import Observer, ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.config import OverlayConfig
from agiledart_overlay.statistics import OverlayStatistics

Handler = Callable[[Event, Instant], None]


class OverlayMachine:
    """One node's part in the ring: takes events, returns effects. Its timers are named `("overlay", …)`.

    Args:
        me: this node; its incarnation must be higher than in any earlier life.
        config: figures; the first three must be equal on all nodes.
        random: for the order of probes and the choice of helpers.
        observe: told what happened.
    """

    def __init__(self, me: Peer, config: OverlayConfig, random: RandomStream, observe: Observer = ignore) -> None:
        config.validate()
        self.me = me

    def step(self, event: Event, now: Instant) -> list[Effect]:
        """Take one event; return what is to be done, in order."""
        raise NotImplementedError

    @property
    def joined(self) -> bool:
        """Whether this node is a member."""
        raise NotImplementedError

    def known_peers(self) -> tuple[Peer, ...]:
        """Peers in any table that are held for alive, sorted by id, without this node."""
        raise NotImplementedError

    def is_alive(self, node: NodeId) -> bool:
        """Whether a node is known and not declared dead; true for this node."""
        raise NotImplementedError

    def next_hop(self, key: NodeId) -> Peer | None:
        """Where a message for this key goes from here; None: this node is the closest."""
        raise NotImplementedError

    def rtt_ns(self, node: NodeId) -> Duration | None:
        """Smoothed round-trip time to a peer; None when it was never measured."""
        raise NotImplementedError

    def statistics(self) -> OverlayStatistics:
        """Counts so far."""
        raise NotImplementedError
