"""Parents and children of one node, for all its topics.

SUBSCRIBE goes one hop towards the topic's key; who gets it takes the sender as a child and, if it is no part of the tree yet,
subscribes itself: so it is absorbed at the first forwarder. Parents beat, children answer; who misses some beats looks for
another parent, who misses some answers forgets the child.

    searching   no parent; SUBSCRIBE is repeated, each time by the tables as they are then
    attached    has a parent, whose beats it hears
    root        no parent, closest to the key

The awkward case is a loop: two nodes take each other for a parent while both move, or by tables that are not right yet. Each
beat and each acceptance carries the way from the root; who finds itself on it has found a loop, and searches anew.

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
    """This node's place in all its trees.

    Attributes:
        topics: by key.
        on_root: told of a topic whose root this node has become, or is no longer.
    """

    __slots__ = ("_view", "on_root", "topics")

    def __init__(self, view: View) -> None:
        self._view = view
        self.topics: dict[NodeId, Topic] = {}
        self.on_root: Callable[[Topic], None] = lambda topic: None

    # ---- joining and leaving

    def part_of(self, key: NodeId) -> Topic | None:
        """The topic, with this node as a part of its tree; None when it is part of too many."""
        topic = self.topics.get(key)
        if topic is None:
            if len(self.topics) >= MAX_TOPICS:
                self._view.drop("topics-full")
                return None
            topic = self.topics[key] = Topic(key)
            self.wake()
        return topic

    def join(self, key: NodeId) -> None:
        """The node above subscribes."""
        topic = self.part_of(key)
        if topic is not None and not topic.has_joined:
            topic.has_joined = True
            if not topic.is_attached:
                self.search(topic)

    def leave(self, key: NodeId) -> None:
        """The node above has enough."""
        topic = self.topics.get(key)
        if topic is not None:
            topic.has_joined = False
            self.prune(topic)

    def prune(self, topic: Topic) -> None:
        """Leave a tree that neither this node nor any child needs; its root keeps it while it owns something."""
        if topic.is_needed or self.topics.get(topic.key) is not topic:
            return
        del self.topics[topic.key]
        for peer in (topic.parent, topic.asked):
            if peer is not None:
                self._view.send(peer, Unsubscribe(topic.key))

    # ---- as child

    def search(self, topic: Topic) -> None:
        """Find a parent: a sibling that was named, or the next hop to the key; or become the root."""
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
                view.look_at(hop)  # the try before was lost, or the way leads over the dead
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
        """A parent was found."""
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
        """Not this parent: the next one, at once if one is known, else after a while."""
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
        """The parent is gone, or is none: look for another one at once."""
        topic.parent, topic.root_path = None, ()
        topic.siblings.clear()
        self.search(topic)

    def on_heartbeat(self, sender: Peer, message: Heartbeat) -> None:
        """A parent lives; tell it for which topics it is one."""
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
        """Somebody wants to be a child."""
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
        """A child goes."""
        topic = self.topics.get(message.topic)
        if topic is not None:
            self.drop_child(topic, sender.node)

    def drop_child(self, topic: Topic, node: NodeId) -> None:
        """Forget a child; the tree is left when it was the last one that needed it."""
        if topic.children.pop(node, None) is not None:
            self.prune(topic)

    def on_heartbeat_ack(self, sender: Peer, message: HeartbeatAck) -> None:
        """A child lives, and says of what it is one."""
        held = frozenset(message.topics)
        for topic in list(self.topics.values()):
            child = topic.children.get(sender.node)
            if child is None:
                continue
            if topic.key in held:
                child.silent = 0
            else:  # of a beat that was sent before it became a child, at most once
                child.silent += 1
                if child.silent > self._view.config.heartbeat_misses:
                    self.drop_child(topic, sender.node)

    def send_heartbeats(self, topic: Topic) -> None:
        """Tell the children at once that the way to them has changed."""
        line = HeartbeatEntry(topic.key, topic.path_from_root(self._view.me.node))
        for child in topic.children.values():
            self._view.send(child.peer, Heartbeat((line,)))

    # ---- time

    def wake(self) -> None:
        """Have the timer set while this node is part of any tree."""
        self._view.set_timer_by("scribe", self._view.now + self._view.config.heartbeat_interval_ns)

    def on_timer(self) -> None:
        """Beat, count who is silent, search where it is due, and see whether the roots are where they should be."""
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
        """The key may belong to another node now, or to this one."""
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
        """Peers are dead or left: children are forgotten, other parents looked for."""
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
        """This node is out of the ring; what the node above joined it searches again when it is back."""
        for topic in list(self.topics.values()):
            topic.children.clear()
            topic.parent = topic.asked = None
            topic.root_path, topic.is_root = (), False
            if not topic.has_joined:
                del self.topics[topic.key]

    def violations(self) -> list[str]:
        """A root has no parent, nobody is its own parent or child, and a tree that nobody needs is left."""
        me, found = self._view.me.node, []
        if self.topics:
            found = self._view.missing_timer("scribe")
        for key, topic in self.topics.items():
            above = [peer.node for peer in (topic.parent, topic.asked) if peer is not None]
            if topic.is_root and above:
                found.append(f"tree: the root of {key.short} has a parent")
            if me in above or me in topic.children or me in topic.root_path:
                found.append(f"tree: this node is above or below itself for {key.short}")
            if not topic.is_needed:
                found.append(f"tree: nobody here needs {key.short}")
        if len(self.topics) > MAX_TOPICS:
            found.append(f"bound: part of {len(self.topics)} trees, at most {MAX_TOPICS}")
        return found
