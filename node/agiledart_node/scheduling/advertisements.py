"""One node's knowledge of schedulers: soft state that schedulers renew. The newest version counts; an old one is dropped.

A dropped advertisement is remembered as long again, so that a neighbour that has not dropped it yet cannot reintroduce it.
"""

from collections.abc import Container
from enum import IntEnum

from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.scheduling.messages import Advertisement

MAX_ADVERTISEMENTS = 256
"""Schedulers that one node remembers; enough for 12,800 applications in its domain."""


class Freshness(IntEnum):
    """Value of a received advertisement: already known, a newer version, or a change that other nodes need at once."""

    OLD = 0
    NEWER = 1
    NEWS = 2


class Advertisements:
    """Table of advertisements by scheduler.

    Args:
        lifetime: how long an advertisement is valid without a newer version.
    """

    def __init__(self, lifetime: Duration) -> None:
        self._lifetime = lifetime
        self._known: dict[NodeId, tuple[Advertisement, Instant]] = {}
        self._dropped: dict[NodeId, tuple[tuple[int, int], Instant]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, node: NodeId) -> Advertisement | None:
        """Return the advertisement of a scheduler; None when there is none."""
        known = self._known.get(node)
        return known[0] if known is not None else None

    def take(self, advertisement: Advertisement, now: Instant) -> Freshness:
        """Keep an advertisement if it is newer than the known one. Return what it was worth."""
        node = advertisement.scheduler.node
        dropped = self._dropped.get(node)
        if dropped is not None and dropped[0] >= advertisement.rank:
            return Freshness.OLD
        known = self._known.get(node)
        if known is not None and known[0].rank >= advertisement.rank:
            return Freshness.OLD
        if known is None and len(self._known) >= MAX_ADVERTISEMENTS:
            del self._known[next(iter(self._known))]
        self._known[node] = (advertisement, now)
        if known is None:
            return Freshness.NEWS
        before = known[0]
        is_same = (before.scheduler.incarnation_key, before.scheduler_slot, before.has_capacity, before.resigned) == (
            advertisement.scheduler.incarnation_key,
            advertisement.scheduler_slot,
            advertisement.has_capacity,
            advertisement.resigned,
        )
        return Freshness.NEWER if is_same else Freshness.NEWS

    def drop(self, peer: Peer, now: Instant) -> None:
        """Drop the advertisement of a peer that is gone, or is no scheduler, up to its incarnation."""
        known = self._known.get(peer.node)
        if known is not None and known[0].scheduler.incarnation <= peer.incarnation:
            del self._known[peer.node]
            if len(self._dropped) >= MAX_ADVERTISEMENTS:
                del self._dropped[next(iter(self._dropped))]
            self._dropped[peer.node] = (known[0].rank, now)

    def forget_old(self, now: Instant, but: NodeId) -> None:
        """Drop advertisements that were not renewed in time.

        Args:
            but: this node, whose own advertisement stays while it holds a scheduler slot.
        """
        for advertisement, since in list(self._known.values()):
            if now - since > self._lifetime and (advertisement.scheduler.node != but or advertisement.resigned):
                self.drop(advertisement.scheduler, now)
        for node in [node for node, (_, since) in self._dropped.items() if now - since > 2 * self._lifetime]:
            del self._dropped[node]

    def all(self) -> list[Advertisement]:
        """Return all advertisements, including resigned ones, in the order in which they became known."""
        return [advertisement for advertisement, _ in self._known.values()]

    def of(self, domain: str) -> list[Advertisement]:
        """Return the schedulers of a domain, by index."""
        active = [ad for ad, _ in self._known.values() if ad.scheduler_slot.domain == domain and not ad.resigned]
        return sorted(active, key=lambda ad: (ad.scheduler_slot.index, ad.scheduler.node))

    def best(self, domain: str, refused: Container[NodeId]) -> Advertisement | None:
        """Return the first scheduler of a domain with capacity. Low indices fill first, so that high ones may resign."""
        return next((ad for ad in self.of(domain) if ad.has_capacity and ad.scheduler.node not in refused), None)

    def violations(self) -> list[str]:
        """Return violated invariants: the tables are bounded, and each advertisement stands under its own scheduler."""
        lines = [
            f"known: {node.short} is another" for node, (ad, _) in self._known.items() if ad.scheduler.node != node
        ]
        most = max(len(self._known), len(self._dropped))
        return [*lines, f"bound: {most} schedulers are known"] if most > MAX_ADVERTISEMENTS else lines
