"""Bottleneck remover: a node with too many children gives the farthest one to the sibling through which it stays nearest.

Source: [Scribe] §4.3 (bottleneck remover); the project's overlay specification §8 step 6.
"""

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.scribe.messages import MAX_SIBLINGS, ChildDropped, Sibling, SiblingAck, SiblingProbe
from agiledart_overlay.scribe.topic import Child, Topic
from agiledart_overlay.scribe.topic_trees import TopicTrees
from agiledart_overlay.state.view import View

_UNKNOWN_US = 1 << 40

_MOVE_TIMEOUT_HEARTBEATS = 4
"""Heartbeats that a child has for its move; then it counts again, and may be asked again."""


class _Choice:
    """Siblings being measured for one topic: number of the probe → sibling, and the results so far."""

    __slots__ = ("asked", "deadline", "measured", "sent_at")

    def __init__(self, sent_at: Instant, deadline: int) -> None:
        self.sent_at, self.deadline = sent_at, deadline
        self.asked: dict[int, Sibling] = {}
        self.measured: list[tuple[int, NodeId, Peer]] = []


class BottleneckRemover:
    """Sender of surplus children to siblings, and mover of this node when its parent has too many."""

    __slots__ = ("_choices", "_tree", "_view")

    def __init__(self, view: View, tree: TopicTrees) -> None:
        self._view, self._tree = view, tree
        self._choices: dict[NodeId, _Choice] = {}

    # ---- the parent

    def shed_children(self) -> None:
        """Ask as many children to move as are too many, from the busiest topics. They stay until they have moved."""
        staying: dict[NodeId, list[Child]] = {}
        for topic in self._tree.topics.values():
            for child in topic.children.values():
                child.moving = max(0, child.moving - 1)
            staying[topic.key] = [child for child in topic.children.values() if not child.moving]
        surplus = sum(map(len, staying.values())) - self._view.config.max_children
        given: list[tuple[Topic, Child]] = []
        for _ in range(surplus):
            dearest = max(
                (self._tree.topics[key] for key, children in staying.items() if len(children) > 1),
                key=lambda topic: (topic.moved, len(staying[topic.key]), topic.key),
                default=None,
            )
            if dearest is None:
                break
            children = staying[dearest.key]
            farthest = max(children, key=lambda child: (self._rtt_us(child.peer), child.peer.node))
            children.remove(farthest)
            farthest.moving = _MOVE_TIMEOUT_HEARTBEATS
            given.append((dearest, farthest))
        for topic, child in given:
            siblings = tuple(Sibling(other.peer, self._rtt_us(other.peer)) for other in staying[topic.key])
            self._view.send(child.peer, ChildDropped(topic.key, siblings[:MAX_SIBLINGS]))

    def _rtt_us(self, peer: Peer) -> int:
        known = self._view.book.get(peer.node)
        return known.rtt_ns // 1_000 if known is not None else 0

    # ---- the child

    def on_child_dropped(self, sender: Peer, message: ChildDropped) -> None:
        """Measure the path through each sibling when the parent has too many children. It stays the parent until a sibling
        accepts.
        """
        view = self._view
        topic = self._tree.topics.get(message.topic)
        if topic is None or topic.parent is None or topic.parent.node != sender.node:
            return
        choice = _Choice(view.now, view.now + view.config.probe_timeout_ns)
        for sibling in message.siblings:
            if sibling.peer.node != view.me.node and sibling.peer.node not in topic.children:
                number = view.number()
                choice.asked[number] = sibling
                view.send(sibling.peer, SiblingProbe(number))
        self._choices[message.topic] = choice
        view.set_timer_by("siblings", choice.deadline)
        if not choice.asked:
            self._choose(message.topic)

    def on_probe(self, sender: Peer, message: SiblingProbe) -> None:
        """Answer a peer that measures the path to this node."""
        self._view.send(sender, SiblingAck(message.number))

    def on_ack(self, sender: Peer, message: SiblingAck) -> None:
        """Take a sibling's answer; choose the best one when all have answered."""
        for key, choice in self._choices.items():
            sibling = choice.asked.pop(message.number, None)
            if sibling is not None:
                own_us = (self._view.now - choice.sent_at) // 1_000
                total = own_us + (sibling.rtt_us or _UNKNOWN_US)
                choice.measured.append((total, sibling.peer.node, sibling.peer))
                if not choice.asked:
                    self._choose(key)
                return

    def on_timer(self) -> None:
        """Stop waiting for siblings that did not answer."""
        view = self._view
        for key in [key for key, choice in self._choices.items() if choice.deadline <= view.now]:
            self._choose(key)
        if self._choices:
            view.set_timer_by("siblings", min(choice.deadline for choice in self._choices.values()))

    def _choose(self, key: NodeId) -> None:
        choice = self._choices.pop(key)
        topic = self._tree.topics.get(key)
        if topic is not None and choice.measured and not topic.is_root:
            topic.siblings = [peer for _, _, peer in sorted(choice.measured, key=lambda entry: entry[:2])]
            self._tree.search(topic)

    def violations(self) -> list[str]:
        """Check that every choice has a timer."""
        choices = self._choices.values()
        return self._view.missing_timer("siblings", min(choice.deadline for choice in choices)) if choices else []
