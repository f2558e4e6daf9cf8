"""Gossip of advertisements: news is pushed at once; the rest is exchanged with one random peer per interval.

News is a new scheduler, one that has become full or free, or one that resigned. Each node that receives news passes it on at once
to a few random peers, so it reaches a zone after some round trips. The periodic exchange carries what a rumour missed, and
renewals. A node that knows of no scheduler sends nothing and sets no timer.

Source: [AgileDART] (schedulers are found by gossip); the project's overlay specification §9 step 1. Departs: the rumour is
added, since an exchange a second needs ten seconds to reach 500 nodes, and submissions do not wait that long.
"""

from collections.abc import Callable

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import NodeContext
from agiledart_node.scheduling.advertisements import Advertisements, Freshness
from agiledart_node.scheduling.messages import MAX_ADVERTISEMENTS_PER_MESSAGE, Advertisement, SchedulerNews

TIMER = ("node", "gossip")

REGION = "*"
"""The only domain under `scheduler_scope = region`."""


_PICKS = 8
"""Random picks among near peers, for each peer wanted, before all of them are looked through."""


def _nothing() -> None:
    """Renew nothing: this node is no scheduler."""


class Gossip:
    """Spreads advertisements.

    Attributes:
        renew: called before each exchange, so that a scheduler renews its advertisement.
    """

    def __init__(self, context: NodeContext, known: Advertisements, random: RandomStream) -> None:
        self._context, self._known, self._random = context, known, random
        self._is_awake = False
        self.renew: Callable[[], None] = _nothing

    @property
    def domain(self) -> str:
        """Return the domain of submissions to this node: its zone, or the region."""
        return REGION if self._context.config.scheduler_scope == "region" else self._context.me.zone

    def peers(self, domain: str) -> list[Peer]:
        """Return the live peers of a domain, without this node.

        They come from the leaf set and the neighbourhood set, or from all tables when these have none.
        """
        overlay = self._context.overlay
        near: dict[NodeId, Peer] = {peer.node: peer for peer in overlay.leaf_set.members}
        near.update((peer.node, peer) for peer in overlay.neighbourhood)
        candidates = [peer for peer in near.values() if domain in (REGION, peer.zone)]
        if not candidates:
            candidates = [peer for peer in overlay.known_peers() if domain in (REGION, peer.zone)]
        return [peer for peer in candidates if not self._context.requests.is_gone(peer)]

    def random_peers(self, count: int) -> list[Peer]:
        """Return this many random peers of the own domain, or all when there are fewer."""
        domain, is_gone, choice = self.domain, self._context.requests.is_gone, self._random.choice
        overlay = self._context.overlay
        near: tuple[Peer, ...] = (*overlay.leaf_set.members, *overlay.neighbourhood)
        chosen: dict[NodeId, Peer] = {}
        for _ in range(_PICKS * count if near else 0):
            peer = choice(near)
            if domain in (REGION, peer.zone) and not is_gone(peer):
                chosen[peer.node] = peer
                if len(chosen) == count:
                    return list(chosen.values())
        others = [peer for peer in self.peers(domain) if peer.node not in chosen]
        self._random.shuffle(others)
        return [*chosen.values(), *others][:count]

    def take(self, advertisement: Advertisement) -> None:
        """Learn an advertisement that came otherwise than by gossip, and spread it if it is news."""
        self._learn((advertisement,))

    def on_news(self, sender: Peer, message: SchedulerNews) -> None:
        """Learn the advertisements; if asked, answer with those that the sender lacks."""
        self._learn(message.advertisements)
        if message.asks:
            received = {ad.scheduler.node: ad.rank for ad in message.advertisements}
            known = (ad for ad in self._known.all() if ad.scheduler_slot.domain == self.domain)
            better = [ad for ad in known if ad.rank > received.get(ad.scheduler.node, (0, 0))]
            if better:
                self._context.send(sender, SchedulerNews(tuple(better[-MAX_ADVERTISEMENTS_PER_MESSAGE:])))

    def _learn(self, advertisements: tuple[Advertisement, ...]) -> None:
        now, news = self._context.now, []
        for advertisement in advertisements:
            is_news = self._known.take(advertisement, now) is Freshness.NEWS
            if is_news and advertisement.scheduler_slot.domain == self.domain:
                news.append(advertisement)
        if news:
            self._spread(tuple(news[:MAX_ADVERTISEMENTS_PER_MESSAGE]))
        if len(self._known) and not self._is_awake:
            self._is_awake = True
            self._set_timer(int(self._context.config.gossip_interval_ns * self._random.uniform()))

    def _spread(self, news: tuple[Advertisement, ...]) -> None:
        message = SchedulerNews(news)
        for peer in self.random_peers(self._context.config.gossip_fanout):
            self._context.send(peer, message)

    def on_timer(self) -> None:
        """Exchange advertisements with one random peer; stop the timer when none is known. Those of other domains just expire."""
        self.renew()
        self._known.forget_old(self._context.now, self._context.me.node)
        if not len(self._known):
            self._is_awake = False
            return
        self._set_timer(self._context.config.gossip_interval_ns)
        mine = [ad for ad in self._known.all() if ad.scheduler_slot.domain == self.domain]
        for peer in self.random_peers(1) if mine else ():
            self._context.send(peer, SchedulerNews(tuple(mine[-MAX_ADVERTISEMENTS_PER_MESSAGE:]), asks=True))

    def _set_timer(self, delay: int) -> None:
        self._context.emit(SetTimer(TIMER, Instant(self._context.now + delay)))

    def known_of(self, node: NodeId) -> Advertisement | None:
        """Return the advertisement of one scheduler; None when there is none."""
        return self._known.get(node)

    def violations(self) -> list[str]:
        """Return violated invariants: a node that knows of a scheduler takes part in gossip."""
        is_asleep = len(self._known) and not self._is_awake
        return [
            *self._known.violations(),
            *(["gossip: schedulers are known, and no timer is set"] if is_asleep else []),
        ]
