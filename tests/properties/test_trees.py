"""Trees of topics: whatever joins, leaves, is published and dies, a quiet tree is a tree, narrow enough, and brings each
publication to every subscriber once."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.scribe.events import (
    AnswerOffer,
    JoinTopic,
    LeaveTopic,
    Offered,
    PublishTo,
    SearchEnded,
    SearchTopic,
    TopicMessage,
)
from agiledart_overlay.scribe.messages import topic_id
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.checkers.trees import tree_violations
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids

TOPIC = topic_id("news", "everybody")
NODES = 14
FAN_OUT = 3
CONFIG = replace(OverlayConfig.lan(), max_children=FAN_OUT)

Action = tuple[str, int, int]
"""(what, which of the nodes that can do it, pause after it in tenths of a second)."""


def actions(*kinds: str) -> st.SearchStrategy[list[Action]]:
    return st.lists(
        st.tuples(st.sampled_from(kinds), st.integers(0, NODES - 1), st.integers(0, 30)), min_size=8, max_size=40
    )


class Garden:
    """A ring, a topic, its subscribers, and the receivers."""

    def __init__(self, seed: int) -> None:
        self.ids = simulated_ids(seed, NODES)
        self.ring = OverlayRing(seed, CONFIG)
        self.ring.listeners.append(self.note)
        self.wanted: dict[NodeId, bool] = {}
        self.got: dict[bytes, list[NodeId]] = {}
        self.may_get: dict[bytes, dict[NodeId, None]] = {}
        self.ends: dict[int, SearchEnded] = {}

    def note(self, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, TopicMessage):
            self.got.setdefault(effect.payload, []).append(peer.node)
        elif isinstance(effect, Offered):
            self.ring.world.inject(peer.node, AnswerOffer(effect.offer, True))
        elif isinstance(effect, SearchEnded):
            self.ends[effect.request] = effect

    @property
    def up(self) -> list[NodeId]:
        return [machine.me.node for machine in self.ring.machines]

    @property
    def subscribers(self) -> list[NodeId]:
        return sorted(node for node in self.up if self.wanted.get(node))

    def choices(self, what: str) -> list[NodeId]:
        """Nodes that can do this now."""
        if what == "join":
            return [node for node in self.up if not self.wanted.get(node)]
        if what == "leave":
            return self.subscribers
        if what == "start":
            return [node for node in self.ids if node not in self.up]
        if what == "crash":
            inside = [each.me.node for each in self.ring.machines if TOPIC in each.scribe.topics]
            return (inside or self.up) if len(self.up) > 4 else []
        return self.up

    def act(self, action: Action) -> None:
        what, place, pause = action
        choices, world = self.choices(what), self.ring.world
        if choices:
            node = choices[place % len(choices)]
            if what == "join":
                self.wanted[node] = True
                world.inject(node, JoinTopic(TOPIC))
                for receivers in self.may_get.values():
                    receivers[node] = None
            elif what == "leave":
                self.wanted[node] = False
                world.inject(node, LeaveTopic(TOPIC))
            elif what == "publish":
                self.publish(node)
            elif what == "crash":
                self.wanted[node] = False
                world.crash(node, silent=bool(pause % 2))
            else:
                self.ring.start(node, self.up[:3])
        world.run_for(pause * 100 * MILLISECOND)

    def publish(self, node: NodeId) -> bytes:
        payload = b"%d" % len(self.may_get)
        self.may_get[payload] = dict.fromkeys(self.subscribers)
        self.ring.world.inject(node, PublishTo(TOPIC, payload))
        return payload

    def is_right(self) -> bool:
        return not tree_violations(self.ring.machines, TOPIC, CONFIG.id_bits, FAN_OUT)

    def check(self) -> None:
        """The properties of a quiet tree."""
        world = self.ring.world
        is_right = world.run_until(self.is_right, 120 * SECOND, SECOND)
        assert is_right, tree_violations(self.ring.machines, TOPIC, CONFIG.id_bits, FAN_OUT)
        for payload, receivers in self.got.items():
            assert len(receivers) == len(set(receivers)), "twice"
            assert not [node for node in receivers if node not in self.may_get[payload]], "to a stranger"
        for node in self.up[::5]:
            payload = self.publish(node)
            world.run_for(3 * SECOND)
            assert sorted(self.got.get(payload, [])) == self.subscribers
        world.inject(self.up[0], SearchTopic(1, TOPIC, b"anybody?"))
        world.run_for(10 * SECOND)
        found = self.ends[1].peer
        assert (found is not None) == bool(self.subscribers)
        assert found is None or found.node in self.subscribers
        if not self.subscribers:
            assert world.run_until(lambda: not any(each.scribe.topics for each in self.ring.machines), 60 * SECOND)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), actions("join", "join", "leave", "publish"))
def test_a_tree_survives_subscribers_that_come_and_go(seed: int, script: list[Action]) -> None:
    garden = Garden(seed)
    garden.ring.assemble(garden.ids)
    for action in script:
        garden.act(action)
    garden.check()


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 5), actions("join", "join", "join", "leave", "publish", "crash", "start"))
def test_a_tree_survives_nodes_that_die_and_return(seed: int, script: list[Action]) -> None:
    garden = Garden(seed)
    assert garden.ring.build(garden.ids, 20 * MILLISECOND)
    for action in script:
        garden.act(action)
    assert garden.ring.world.run_until(lambda: all(each.joined for each in garden.ring.machines), 60 * SECOND)
    garden.check()
