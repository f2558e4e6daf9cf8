"""`Scribe`: the topic trees of one node, composed for the overlay machine."""

from collections.abc import Callable
from typing import Any

from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.scribe import events
from agiledart_overlay.scribe import messages as wire
from agiledart_overlay.scribe.bottleneck_remover import BottleneckRemover
from agiledart_overlay.scribe.dissemination import Dissemination
from agiledart_overlay.scribe.topic import Topic
from agiledart_overlay.scribe.topic_roots import TopicRoots
from agiledart_overlay.scribe.topic_trees import TopicTrees
from agiledart_overlay.state.view import View

Handler = Callable[[Peer, Any], None]


class Scribe:
    """Topic trees of one node."""

    __slots__ = ("_bottleneck", "_dissemination", "_roots", "_tree", "_view", "timers")

    def __init__(self, view: View) -> None:
        self._view = view
        self._tree = TopicTrees(view)
        self._roots = TopicRoots(view, self._tree)
        self._dissemination = Dissemination(view, self._tree)
        self._bottleneck = BottleneckRemover(view, self._tree)
        self.timers: dict[str, Callable[[], None]] = {
            "scribe": self._on_heartbeat_timer,
            "topics": self._roots.on_timer,
            "casts": self._dissemination.on_timer,
            "siblings": self._bottleneck.on_timer,
        }

    @property
    def topics(self) -> dict[NodeId, Topic]:
        """Return the topics of which this node is a part; read only."""
        return self._tree.topics

    @property
    def held_states(self) -> dict[NodeId, tuple[int, bytes]]:
        """Return version and state of topics whose state this node holds, as root or as replica."""
        return {key: (topic_state.version, topic_state.state) for key, topic_state in self._roots.topic_states.items()}

    def events(self) -> dict[type[Event], Callable[[Any], None]]:
        """Return the handler of each request of the node above."""
        return {
            events.JoinTopic: lambda event: self._tree.join(event.topic),
            events.LeaveTopic: lambda event: self._tree.leave(event.topic),
            events.PublishTo: self._dissemination.publish,
            events.SearchTopic: self._dissemination.search,
            events.AnswerOffer: self._dissemination.answer,
            events.AskTopic: self._roots.ask,
        }

    def messages(self) -> dict[type, Handler]:
        """Return the handler of each message."""
        tree, roots, dissemination, bottleneck = self._tree, self._roots, self._dissemination, self._bottleneck
        return {
            wire.Subscribe: tree.on_subscribe,
            wire.Subscribed: tree.on_subscribed,
            wire.SubscribeRefused: tree.on_refused,
            wire.Unsubscribe: tree.on_unsubscribe,
            wire.Heartbeat: tree.on_heartbeat,
            wire.HeartbeatAck: tree.on_heartbeat_ack,
            wire.Publish: dissemination.on_publish,
            wire.Published: dissemination.on_published,
            wire.Multicast: dissemination.on_multicast,
            wire.ChildDropped: bottleneck.on_child_dropped,
            wire.SiblingProbe: bottleneck.on_probe,
            wire.SiblingAck: bottleneck.on_ack,
            wire.Anycast: dissemination.on_anycast,
            wire.AnycastEnd: dissemination.on_end,
            wire.RootCopy: roots.on_copy,
            wire.RootStateHeld: roots.on_held,
            wire.TopicRequest: roots.on_ask,
            wire.TopicReply: roots.on_reply,
        }

    def _on_heartbeat_timer(self) -> None:
        self._bottleneck.shed_children()
        self._tree.on_timer()
        if self._view.joined:
            self._roots.on_heartbeat()
        if self._roots.topic_states:
            self._tree.wake()

    def on_leaves_changed(self, gone: list[Peer]) -> None:
        """React to a changed leaf set: keys may have other roots now."""
        for topic in list(self._tree.topics.values()):
            self._tree.check_root(topic)
        self._roots.on_leaves_changed(gone)

    def on_gone(self, gone: list[Peer]) -> None:
        """React to dead or departed peers."""
        self._tree.on_gone(gone)

    def violations(self) -> list[str]:
        """Check all trees of this node."""
        parts = (self._tree, self._roots, self._dissemination, self._bottleneck)
        return [line for part in parts for line in part.violations()]

    def stop(self) -> None:
        """Stop: this node is out of the ring."""
        self._tree.stop()
        self._roots.stop()
        self._dissemination.stop()
        for name in self.timers:
            self._view.cancel_timer(name)
        if self._tree.topics:
            self._tree.wake()
