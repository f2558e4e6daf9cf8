"""State of a topic at its root, and its copies on the nearest leaves, one of which becomes the next root.

The owner is the first writer. A copy of a higher version replaces a lower one. Of two roots after a partition the higher version
stays, and at equal versions the smaller owner id.

Source: [Scribe] §3.2; the project's overlay specification §8 step 5.
"""

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.scribe.events import AskTopic, TopicAnswer
from agiledart_overlay.scribe.messages import (
    MAX_ROOT_BYTES,
    MAX_TOPICS,
    RootCopy,
    RootStateHeld,
    TopicReply,
    TopicRequest,
)
from agiledart_overlay.scribe.topic import Topic
from agiledart_overlay.scribe.topic_trees import TopicTrees
from agiledart_overlay.state.view import View

MAX_ASKED = 256
"""Pending requests of this node to roots."""

_TRIES = 8


class TopicState:
    """State of a topic at its root.

    Attributes:
        confirmed_by: leaves that confirmed this version.
    """

    __slots__ = ("confirmed_by", "owner", "state", "version")

    def __init__(self, version: int, owner: Peer | None, state: bytes) -> None:
        self.version, self.owner, self.state = version, owner, state
        self.confirmed_by: dict[NodeId, None] = {}

    @property
    def rank(self) -> tuple[int, int]:
        """Return the rank; of two states, the one with the higher rank stays."""
        return self.version, -self.owner.node if self.owner is not None else 1


class TopicRoots:
    """Topics of which this node is root, or holds a copy."""

    __slots__ = ("_asked", "_tree", "_view", "topic_states")

    def __init__(self, view: View, tree: TopicTrees) -> None:
        self._view, self._tree = view, tree
        self.topic_states: dict[NodeId, TopicState] = {}
        self._asked: dict[int, tuple[AskTopic, int]] = {}
        tree.on_root = self._on_root

    # ---- the owner

    def ask(self, event: AskTopic) -> None:
        """Read or write a topic's state at its root."""
        view = self._view
        if len(self._asked) >= MAX_ASKED or len(event.state or b"") > MAX_ROOT_BYTES:
            view.effects.append(TopicAnswer(event.request, ok=False, owner=None, state=b""))
            return
        number = view.number()
        self._asked[number] = (event, 0)
        self._send(number, event)

    def _send(self, number: int, event: AskTopic) -> None:
        view = self._view
        self.on_ask(view.me, TopicRequest(event.topic, view.me, number, 0, event.state))
        if self._asked:
            view.set_timer_by("topics", view.now + view.config.record_retry_ns)

    def on_timer(self) -> None:
        """Ask again, or give up."""
        view = self._view
        for number, (event, tries) in list(self._asked.items()):
            if tries >= _TRIES:
                del self._asked[number]
                view.effects.append(TopicAnswer(event.request, ok=False, owner=None, state=b""))
            else:
                self._asked[number] = (event, tries + 1)
                self._send(number, event)

    def on_reply(self, sender: Peer, message: TopicReply) -> None:
        """Take the root's answer."""
        asked = self._asked.pop(message.number, None)
        if asked is not None:
            self._view.effects.append(TopicAnswer(asked[0].request, message.ok, message.owner, message.state))

    # ---- the root

    def on_ask(self, sender: Peer, message: TopicRequest) -> None:
        """Pass a request on towards the root, or answer it there."""
        view = self._view
        hop = view.next_hop(message.topic).peer if view.joined else None
        if hop is not None:
            if message.hops < 2 * (view.config.id_bits // view.config.digit_bits):
                onward = TopicRequest(message.topic, message.client, message.number, message.hops + 1, message.state)
                view.send(hop, onward)
            else:
                view.drop("topic-ttl")
        elif view.is_root(message.topic):
            self._answer(message)
        else:
            view.drop("topic-root")

    def _answer(self, message: TopicRequest) -> None:
        view = self._view
        topic_state = self.topic_states.get(message.topic)
        ok = topic_state is not None
        if message.state is not None:
            owner = topic_state.owner if topic_state is not None else None
            ok = owner is None or owner.node == message.client.node
            if ok and (topic_state is None or topic_state.state != message.state):
                ok = self._keep(
                    message.topic,
                    TopicState((topic_state.version if topic_state else 0) + 1, message.client, message.state),
                )
                self._spread(message.topic)
            topic_state = self.topic_states.get(message.topic)
        reply = TopicReply(
            message.number,
            ok,
            topic_state.owner if topic_state is not None else None,
            topic_state.state if topic_state is not None else b"",
        )
        if message.client.node == view.me.node:
            self.on_reply(view.me, reply)
        else:
            view.send(message.client, reply)

    def _keep(self, key: NodeId, topic_state: TopicState) -> bool:
        if key not in self.topic_states and len(self.topic_states) >= MAX_TOPICS:
            self._view.drop("topics-full")
            return False
        self.topic_states[key] = topic_state
        return True

    def _on_root(self, topic: Topic) -> None:
        """Spread the state when this node becomes the root, or no longer is: the new root must get it."""
        if topic.key in self.topic_states:
            self._spread(topic.key)

    def _spread(self, key: NodeId) -> None:
        """Send copies to the nearest leaves; a node that is not the root sends to the root only."""
        view, topic_state = self._view, self.topic_states[key]
        count = view.config.root_replicas if view.is_root(key) else 1
        for peer in view.leaf_set.nearest_to(key, count):
            if peer.node not in topic_state.confirmed_by:
                view.send(peer, RootCopy(key, topic_state.version, topic_state.owner, topic_state.state))
        self._tree.wake()

    def on_copy(self, sender: Peer, message: RootCopy) -> None:
        """Store a copy that is not older than the own one; send a newer one back."""
        view = self._view
        theirs = TopicState(message.version, message.owner, message.state)
        mine = self.topic_states.get(message.topic)
        if mine is not None and mine.rank > theirs.rank:
            view.send(sender, RootCopy(message.topic, mine.version, mine.owner, mine.state))
            return
        if mine is None or mine.rank < theirs.rank:
            if not self._keep(message.topic, theirs):
                return
            if view.is_root(message.topic):
                self._spread(message.topic)
        view.send(sender, RootStateHeld(message.topic, message.version))

    def on_held(self, sender: Peer, message: RootStateHeld) -> None:
        """Note that a leaf has the state."""
        topic_state = self.topic_states.get(message.topic)
        if topic_state is not None and message.version >= topic_state.version:
            topic_state.confirmed_by[sender.node] = None

    def on_leaves_changed(self, gone: list[Peer]) -> None:
        """React to a changed leaf set: spread copies; other nodes' copies go to the root and are dropped at a later heartbeat."""
        for key, topic_state in list(self.topic_states.items()):
            for peer in gone:
                topic_state.confirmed_by.pop(peer.node, None)
            self._spread(key)

    def on_heartbeat(self) -> None:
        """Send unconfirmed copies again; drop copies that this node need not hold."""
        view = self._view
        for key, topic_state in list(self.topic_states.items()):
            keepers = view.leaf_set.nearest_to(key, view.config.root_replicas + 1)
            if not view.is_root(key) and keepers and keepers[0].node in topic_state.confirmed_by:
                ranked = [peer.node for peer in keepers]
                own = min(abs(view.me.node - key), (1 << view.config.id_bits) - abs(view.me.node - key))
                last = ranked[-1]
                far = min(abs(last - key), (1 << view.config.id_bits) - abs(last - key))
                if len(ranked) > view.config.root_replicas and own > far:
                    del self.topic_states[key]
                    continue
            self._spread(key)

    def stop(self) -> None:
        """Stop: this node is out of the ring, and the copies live on elsewhere."""
        self.topic_states.clear()
        self._asked.clear()

    def violations(self) -> list[str]:
        """Check that requests have a timer, and that requests and copies are bounded."""
        complaints = self._view.missing_timer("topics") if self._asked else []
        if len(self._asked) > MAX_ASKED or len(self.topic_states) > MAX_TOPICS:
            complaints.append(f"bound: {len(self._asked)} requests to roots, {len(self.topic_states)} topic states")
        return complaints
