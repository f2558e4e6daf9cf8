"""Parents and children of one node, for all its topics.

SUBSCRIBE goes one hop towards the topic's key. The receiver takes the sender as a child and, if it is not part of the tree yet,
subscribes itself: so the first forwarder absorbs it. Parents send heartbeats, children answer. A child that misses some
heartbeats looks for another parent; a parent that misses some answers drops the child.

    searching   no parent; SUBSCRIBE is repeated, each time by the present tables
    attached    has a parent, whose heartbeats it receives
    root        no parent, closest to the key

The awkward case is a loop: two nodes take each other for a parent while both move, or by tables that are not right yet. Each
heartbeat and each acceptance carries the path from the root; a node that finds itself on it has found a loop, and searches anew.

Source: [Scribe] §3; the project's overlay specification §8 steps 2, 4 and 5.
"""

from collections.abc import Callable

from agiledart_kernel.limits import MAX_PATH
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.scribe.messages import (
    MAX_TOPICS,
    Heartbeat,
    HeartbeatAck,
    HeartbeatEntry,
    Subscribe,
    Subscribed,
    SubscribeRefused,
    Unsubscribe,
)
from agiledart_overlay.scribe.topic import Child, Topic
from agiledart_overlay.state.view import View


class TopicTrees:
    """Place of this node in all its trees.

    Attributes:
        topics: by key.
        on_root: called with a topic whose root this node has become, or is no longer.
    """

    __slots__ = ("_view", "on_root", "topics")

    def __init__(self, view: View) -> None:
        self._view = view
        self.topics: dict[NodeId, Topic] = {}
        self.on_root: Callable[[Topic], None] = lambda topic: None

    # ---- joining and leaving

    def part_of(self, key: NodeId) -> Topic | None:
        """Return the topic, with this node as a part of its tree; None when it is part of too many."""
        topic = self.topics.get(key)
        if topic is None:
            if len(self.topics) >= MAX_TOPICS:
                self._view.drop("topics-full")
                return None
            topic = self.topics[key] = Topic(key)
            self.wake()
        return topic

    def join(self, key: NodeId) -> None:
        """Subscribe for the node above."""
        topic = self.part_of(key)
        if topic is not None and not topic.has_joined:
            topic.has_joined = True
            if not topic.is_attached:
                self.search(topic)

    def leave(self, key: NodeId) -> None:
        """Unsubscribe for the node above."""
        topic = self.topics.get(key)
        if topic is not None:
            topic.has_joined = False
            self.prune(topic)

    def prune(self, topic: Topic) -> None:
        """Leave a tree that neither this node nor any child needs."""
        if topic.is_needed or self.topics.get(topic.key) is not topic:
            return
        del self.topics[topic.key]
        for peer in (topic.parent, topic.asked):
            if peer is not None:
                self._view.send(peer, Unsubscribe(topic.key))

    # ---- as child

    def search(self, topic: Topic) -> None:
        """Find a parent: a named sibling, or the next hop to the key; or become the root."""
        view = self._view
        before, topic.asked = topic.asked, None
        if not view.joined:
            self.wake()
            return
        while topic.siblings:
            sibling = topic.siblings.pop(0)
            if sibling.node in view.book and sibling.node not in topic.children:
                self._ask(topic, sibling)
                return
        hop = view.next_hop(topic.key).peer
        if hop is not None:
            if before is not None and before.node == hop.node:
                view.look_at(hop)  # the last attempt was lost, or the route leads over dead nodes
            self._ask(topic, hop)
        elif view.is_root(topic.key):
            self._become_root(topic)
        else:
            self.wake()

    def _ask(self, topic: Topic, peer: Peer) -> None:
        view = self._view
        topic.asked, topic.asked_at, topic.number = peer, view.now, view.number()
        topic.tries += 1
        view.send(peer, Subscribe(topic.key, topic.number))
        self.wake()

    def _become_root(self, topic: Topic) -> None:
        if not topic.is_root:
            topic.is_root = True
            topic.parent = topic.asked = None
            topic.root_path, topic.tries = (), 0
            self.on_root(topic)
            self.send_heartbeats(topic)

    def on_subscribed(self, sender: Peer, message: Subscribed) -> None:
        """Take a parent's acceptance."""
        view = self._view
        topic = self.topics.get(message.topic)
        if topic is None or topic.asked is None or (topic.asked.node, topic.number) != (sender.node, message.number):
            if topic is None or topic.parent is None or topic.parent.node != sender.node:
                view.send(sender, Unsubscribe(message.topic))
            return
        topic.asked = None
        if self._is_loop(message.root_path):
            view.send(sender, Unsubscribe(topic.key))
            self.wake()
            return
        if topic.parent is not None and topic.parent.node != sender.node:
            view.send(topic.parent, Unsubscribe(topic.key))
        topic.siblings.clear()
        topic.parent, topic.root_path, topic.last_received_at, topic.tries = sender, message.root_path, view.now, 0
        topic.is_root = False
        self.send_heartbeats(topic)

    def _is_loop(self, root_path: tuple[NodeId, ...]) -> bool:
        return self._view.me.node in root_path or len(root_path) >= MAX_PATH - 1

    def on_refused(self, sender: Peer, message: SubscribeRefused) -> None:
        """Try the next parent after a refusal: at once if one is known, else after a while."""
        topic = self.topics.get(message.topic)
        if (
            topic is not None
            and topic.asked is not None
            and (topic.asked.node, topic.number) == (sender.node, message.number)
        ):
            topic.asked = None
            if topic.siblings:
                self.search(topic)
            else:
                self.wake()

    def orphan(self, topic: Topic) -> None:
        """Look for another parent at once: the present one is gone, or is none."""
        topic.parent, topic.root_path = None, ()
        topic.siblings.clear()
        self.search(topic)

    def on_heartbeat(self, sender: Peer, message: Heartbeat) -> None:
        """Take a parent's heartbeat, and confirm the topics for which it is the parent."""
        view = self._view
        mine = []
        for line in message.lines:
            topic = self.topics.get(line.topic)
            if topic is None or topic.parent is None or topic.parent.node != sender.node:
                continue
            if self._is_loop(line.root_path):
                self.orphan(topic)
                continue
            topic.last_received_at = view.now
            mine.append(line.topic)
            if topic.root_path != line.root_path:
                topic.root_path = line.root_path
                self.send_heartbeats(topic)
        view.send(sender, HeartbeatAck(tuple(mine)))

    # ---- as parent

    def on_subscribe(self, sender: Peer, message: Subscribe) -> None:
        """Take a peer as a child."""
        view = self._view
        if not view.joined:
            view.drop("topic-outside")
            return
        topic = self.topics.get(message.topic)
        is_above = topic is not None and (
            sender.node in topic.root_path or (topic.parent is not None and topic.parent.node == sender.node)
        )
        if is_above or (topic is None and (topic := self.part_of(message.topic)) is None):
            view.send(sender, SubscribeRefused(message.topic, message.number))
            return
        assert topic is not None
        child = topic.children.get(sender.node)
        if child is None or child.peer.incarnation <= sender.incarnation:
            topic.children[sender.node] = Child(sender)
        view.send(sender, Subscribed(message.topic, message.number, topic.path_from_root(view.me.node)))
        if not topic.is_attached and topic.asked is None:
            self.search(topic)
        self.wake()

    def on_unsubscribe(self, sender: Peer, message: Unsubscribe) -> None:
        """Drop a child that leaves."""
        topic = self.topics.get(message.topic)
        if topic is not None:
            self.drop_child(topic, sender.node)

    def drop_child(self, topic: Topic, node: NodeId) -> None:
        """Drop a child; leave the tree when it was the last one that needed it."""
        if topic.children.pop(node, None) is not None:
            self.prune(topic)

    def on_heartbeat_ack(self, sender: Peer, message: HeartbeatAck) -> None:
        """Take a child's answer: it names the topics for which it is a child."""
        held = frozenset(message.topics)
        for topic in list(self.topics.values()):
            child = topic.children.get(sender.node)
            if child is None:
                continue
            if topic.key in held:
                child.silent = 0
            else:  # it may answer a heartbeat from before it became a child, at most once
                child.silent += 1
                if child.silent > self._view.config.heartbeat_misses:
                    self.drop_child(topic, sender.node)

    def send_heartbeats(self, topic: Topic) -> None:
        """Send a changed path to the children at once."""
        line = HeartbeatEntry(topic.key, topic.path_from_root(self._view.me.node))
        for child in topic.children.values():
            self._view.send(child.peer, Heartbeat((line,)))

    # ---- time

    def wake(self) -> None:
        """Set the timer while this node is part of any tree."""
        self._view.set_timer_by("scribe", self._view.now + self._view.config.heartbeat_interval_ns)

    def on_timer(self) -> None:
        """Send heartbeats, count silences, search where it is due, and check the roots."""
        view = self._view
        if not self.topics:
            return
        self.wake()
        if not view.joined:
            return
        lines: dict[NodeId, tuple[Peer, list[HeartbeatEntry]]] = {}
        for topic in list(self.topics.values()):
            self.check_root(topic)
            self._count_silence(topic)
            topic.moved = 0
            line = HeartbeatEntry(topic.key, topic.path_from_root(view.me.node))
            for node, child in topic.children.items():
                lines.setdefault(node, (child.peer, []))[1].append(line)
        for peer, theirs in lines.values():
            view.send(peer, Heartbeat(tuple(theirs)))

    def check_root(self, topic: Topic) -> None:
        """Check whether the key belongs to another node now, or to this one."""
        view = self._view
        if topic.is_root and not view.is_root(topic.key) and view.next_hop(topic.key).peer is not None:
            topic.is_root = False
            self.on_root(topic)
            self.search(topic)
        elif not topic.is_root and view.is_root(topic.key):
            if topic.parent is not None:
                view.send(topic.parent, Unsubscribe(topic.key))
            self._become_root(topic)

    def _count_silence(self, topic: Topic) -> None:
        view = self._view
        timeout_ns = view.config.heartbeat_misses * view.config.heartbeat_interval_ns
        for node, child in list(topic.children.items()):
            child.silent += 1
            if child.silent > view.config.heartbeat_misses + 1:
                self.drop_child(topic, node)
        if self.topics.get(topic.key) is not topic or topic.is_root:
            return
        if topic.parent is not None and view.now - topic.last_received_at > timeout_ns:
            self.orphan(topic)
        elif topic.parent is None and (
            topic.asked is None or view.now - topic.asked_at >= view.config.heartbeat_interval_ns
        ):
            self.search(topic)

    def on_gone(self, gone: list[Peer]) -> None:
        """Drop dead or departed children, and replace such parents."""
        incarnations = {peer.node: peer.incarnation for peer in gone}
        for topic in list(self.topics.values()):
            for node in [node for node in topic.children if node in incarnations]:
                self.drop_child(topic, node)
            if self.topics.get(topic.key) is not topic:
                continue
            if topic.parent is not None and topic.parent.node in incarnations:
                self.orphan(topic)
            elif topic.asked is not None and topic.asked.node in incarnations:
                self.search(topic)

    def stop(self) -> None:
        """Stop: this node is out of the ring; subscriptions of the node above are searched again when it is back."""
        for topic in list(self.topics.values()):
            topic.children.clear()
            topic.parent = topic.asked = None
            topic.root_path, topic.is_root = (), False
            if not topic.has_joined:
                del self.topics[topic.key]

    def violations(self) -> list[str]:
        """Check that a root has no parent, that no node is its own parent or child, and that unneeded trees were left."""
        me, complaints = self._view.me.node, []
        if self.topics:
            complaints = self._view.missing_timer("scribe")
        for key, topic in self.topics.items():
            above = [peer.node for peer in (topic.parent, topic.asked) if peer is not None]
            if topic.is_root and above:
                complaints.append(f"tree: the root of {key.short} has a parent")
            if me in above or me in topic.children or me in topic.root_path:
                complaints.append(f"tree: this node is above or below itself for {key.short}")
            if not topic.is_needed:
                complaints.append(f"tree: no subscriber here needs {key.short}")
        if len(self.topics) > MAX_TOPICS:
            complaints.append(f"bound: part of {len(self.topics)} trees, at most {MAX_TOPICS}")
        return complaints
