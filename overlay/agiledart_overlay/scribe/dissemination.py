"""Messages along a tree: publications from the root to all, and searches for one subscriber.

A publication is sent once along each edge; a tree under repair may lose one. A receiver that must get everything has to ask for
it.

Source: [Scribe] §3.3; the project's overlay specification §8 steps 3 and 7.
"""

from agiledart_kernel.counts import saturating_increment
from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.scribe.events import AnswerOffer, Offered, PublishTo, SearchEnded, SearchTopic, TopicMessage
from agiledart_overlay.scribe.messages import (
    MAX_PAYLOAD_BYTES,
    MAX_SEARCHED,
    Anycast,
    AnycastEnd,
    Multicast,
    Publish,
    Published,
)
from agiledart_overlay.scribe.topic import Topic
from agiledart_overlay.scribe.topic_trees import TopicTrees
from agiledart_overlay.state.view import View

MAX_SEEN = 256
"""Publications of one topic that a node remembers, to detect duplicates."""

MAX_PENDING = 256
"""Own publications and searches in progress, and searches that wait for this node's answer."""

_TRIES = 4


class Dissemination:
    """Publications and searches at one node."""

    __slots__ = ("_offers", "_published", "_roots", "_searches", "_tree", "_view")

    def __init__(self, view: View, tree: TopicTrees) -> None:
        self._view, self._tree = view, tree
        self._roots: dict[NodeId, Peer] = {}
        self._published: dict[int, tuple[Publish, int]] = {}
        self._searches: dict[int, tuple[SearchTopic, int]] = {}
        self._offers: dict[int, Anycast] = {}

    # ---- publishing

    def publish(self, event: PublishTo) -> None:
        """Send a payload to the root, directly if it is known."""
        view = self._view
        if len(event.payload) > MAX_PAYLOAD_BYTES or len(self._published) >= MAX_PENDING:
            view.drop("publish-full")
            return
        message = Publish(event.topic, view.me, view.number(), 0, event.payload)
        self._published[message.number] = (message, 0)
        self._send(message)

    def _send(self, message: Publish) -> None:
        view = self._view
        root = self._roots.get(message.topic)
        if root is not None and root.node in view.book:
            view.send(root, message)
        else:
            self.on_publish(view.me, message)
        if self._published:
            view.set_timer_by("casts", view.now + view.config.record_retry_ns)

    def on_publish(self, sender: Peer, message: Publish) -> None:
        """Pass a publication on towards the root, or send it down the tree."""
        view = self._view
        hop = view.next_hop(message.topic).peer if view.joined else None
        if hop is not None:
            if message.hops < 2 * (view.config.id_bits // view.config.digit_bits):
                onward = Publish(message.topic, message.origin, message.number, message.hops + 1, message.payload)
                view.send(hop, onward)
            else:
                view.drop("publish-ttl")
        elif view.is_root(message.topic):
            topic = self._tree.topics.get(message.topic)
            if topic is not None:
                self._down(topic, Multicast(message.topic, message.origin, message.number, message.payload))
            if message.origin.node == view.me.node:
                self._published.pop(message.number, None)
            else:
                view.send(message.origin, Published(message.topic, message.number))
        else:
            view.drop("publish-root")

    def on_published(self, sender: Peer, message: Published) -> None:
        """Note that the root has a publication."""
        if self._published.pop(message.number, None) is not None:
            if len(self._roots) >= MAX_PENDING:
                del self._roots[next(iter(self._roots))]
            self._roots[message.topic] = sender

    def on_multicast(self, sender: Peer, message: Multicast) -> None:
        """Take a publication from the parent, for this node and its children."""
        topic = self._tree.topics.get(message.topic)
        if topic is not None and topic.parent is not None and topic.parent.node == sender.node:
            topic.last_received_at = self._view.now
            self._down(topic, message)
        else:
            self._view.drop("multicast-stranger")

    def _down(self, topic: Topic, message: Multicast) -> None:
        view = self._view
        mark = (message.origin.node, message.origin.incarnation, message.number)
        if mark in topic.seen:
            return
        topic.seen[mark] = None
        if len(topic.seen) > MAX_SEEN:
            del topic.seen[next(iter(topic.seen))]
        for child in topic.children.values():
            topic.moved += 1
            view.send(child.peer, message)
        if topic.has_joined:
            view.effects.append(TopicMessage(message.topic, message.payload, message.origin))

    # ---- searching

    def search(self, event: SearchTopic) -> None:
        """Begin a search here."""
        view = self._view
        if len(event.payload) > MAX_PAYLOAD_BYTES or len(self._searches) >= MAX_PENDING:
            view.effects.append(SearchEnded(event.request, None, 0))
            return
        number = view.number()
        self._searches[number] = (event, 0)
        view.set_timer_by("casts", view.now + view.config.record_retry_ns)
        self.on_anycast(view.me, Anycast(event.topic, view.me, number, event.payload))

    def on_anycast(self, sender: Peer, message: Anycast) -> None:
        """Take a search: it enters the tree on the route to its root, then goes depth first."""
        view = self._view
        topic = self._tree.topics.get(message.topic)
        if topic is None and not message.visited:
            hop = view.next_hop(message.topic).peer if view.joined else None
            if hop is None or message.hops >= MAX_PATH:
                self._end(message, accepted=False)
            else:
                view.send(hop, self._moved(message, message.visited, message.stack))
        elif topic is not None and topic.has_joined and view.me.node not in message.visited:
            self._offer(topic, message)
        else:
            self._go_on(topic, message)

    def _offer(self, topic: Topic, message: Anycast) -> None:
        view = self._view
        if len(self._offers) >= MAX_PENDING:
            del self._offers[next(iter(self._offers))]
            view.drop("offers-full")
        offer = view.number()
        self._offers[offer] = message
        view.effects.append(Offered(offer, topic.key, message.payload, message.origin))

    def answer(self, event: AnswerOffer) -> None:
        """Take the answer of the node above: when it refuses, the search goes on."""
        message = self._offers.pop(event.offer, None)
        if message is None:
            return
        if event.accepted:
            self._end(message, accepted=True)
        else:
            self._go_on(self._tree.topics.get(message.topic), message)

    def _go_on(self, topic: Topic | None, message: Anycast) -> None:
        """Pass a search on to an unvisited child, else back, else up."""
        view = self._view
        visited = message.visited if view.me.node in message.visited else (*message.visited, view.me.node)
        if len(visited) >= MAX_SEARCHED:
            self._end(message, accepted=False)
            return
        if topic is not None and len(message.stack) < MAX_PATH:
            for node, child in topic.children.items():
                if node not in visited:
                    view.send(child.peer, self._moved(message, visited, (*message.stack, view.me)))
                    return
        if message.stack:
            view.send(message.stack[-1], self._moved(message, visited, message.stack[:-1]))
        elif topic is not None and topic.parent is not None and topic.parent.node not in visited:
            view.send(topic.parent, self._moved(message, visited, ()))
        else:
            self._end(message, accepted=False)

    def _moved(self, message: Anycast, visited: tuple[NodeId, ...], stack: tuple[Peer, ...]) -> Anycast:
        hops = saturating_increment(message.hops)
        return Anycast(message.topic, message.origin, message.number, message.payload, visited, stack, hops)

    def _end(self, message: Anycast, *, accepted: bool) -> None:
        end = AnycastEnd(message.number, accepted, message.hops)
        if message.origin.node == self._view.me.node:
            self.on_end(self._view.me, end)
        else:
            self._view.send(message.origin, end)

    def on_end(self, sender: Peer, message: AnycastEnd) -> None:
        """End a search of this node."""
        search = self._searches.pop(message.number, None)
        if search is not None:
            peer = sender if message.accepted else None
            self._view.effects.append(SearchEnded(search[0].request, peer, message.hops))

    # ---- time

    def on_timer(self) -> None:
        """Repeat unconfirmed publications and unfinished searches; give up after some tries."""
        view = self._view
        for number, (message, tries) in list(self._published.items()):
            if tries >= _TRIES:
                del self._published[number]
                view.drop("publish-undelivered")
            else:
                self._roots.pop(message.topic, None)
                self._published[number] = (message, tries + 1)
                self._send(message)
        for number, (event, tries) in list(self._searches.items()):
            if tries >= _TRIES:
                del self._searches[number]
                view.effects.append(SearchEnded(event.request, None, 0))
            else:
                self._searches[number] = (event, tries + 1)
                if tries % 2:  # a lost message ends a search; one that only takes long is not repeated at once
                    self.on_anycast(view.me, Anycast(event.topic, view.me, number, event.payload))
        if self._published or self._searches:
            view.set_timer_by("casts", view.now + view.config.record_retry_ns)

    def stop(self) -> None:
        """Stop all messages in progress: this node is out of the ring."""
        for event, _ in self._searches.values():
            self._view.effects.append(SearchEnded(event.request, None, 0))
        self._published.clear()
        self._searches.clear()
        self._offers.clear()

    def violations(self) -> list[str]:
        """Check that messages in progress have a timer and are bounded."""
        is_waiting = self._published or self._searches
        complaints = self._view.missing_timer("casts") if is_waiting else []
        largest = max(len(self._published), len(self._searches), len(self._offers), len(self._roots))
        return (
            [*complaints, f"bound: {largest} messages are in progress, at most {MAX_PENDING}"]
            if largest > MAX_PENDING
            else complaints
        )
