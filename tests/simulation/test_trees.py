"""Scribe trees in the simulator: joining, publishing, searching, deaths, loads, churn."""

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.scribe.events import (
    AnswerOffer,
    AskTopic,
    JoinTopic,
    LeaveTopic,
    Offered,
    PublishTo,
    SearchEnded,
    SearchTopic,
    TopicAnswer,
    TopicMessage,
)
from agiledart_overlay.scribe.messages import topic_id
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_simulation.checkers.routing import root_of
from agiledart_simulation.checkers.trees import tree_violations
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids

TOPIC = topic_id("schedulers", "zone-1")
QUIET = 20 * SECOND


class Grove:
    """A ring whose nodes join topics; `accepts` holds the nodes that accept an offer."""

    def __init__(self, seed: int, count: int, network: NetworkConfig | None = None) -> None:
        self.ids = simulated_ids(seed, count)
        self.ring = OverlayRing(seed, OverlayConfig.lan(), network, checks_wire=True)
        self.got: list[tuple[NodeId, TopicMessage]] = []
        self.ends: dict[int, SearchEnded] = {}
        self.answers: dict[int, TopicAnswer] = {}
        self.offered: list[NodeId] = []
        self.accepts: list[NodeId] = []
        told = self.ring.world._on_effect
        assert told is not None

        def on_effect(peer: Peer, effect: Effect) -> None:
            if isinstance(effect, TopicMessage):
                self.got.append((peer.node, effect))
            elif isinstance(effect, SearchEnded):
                self.ends[effect.request] = effect
            elif isinstance(effect, TopicAnswer):
                self.answers[effect.request] = effect
            elif isinstance(effect, Offered):
                self.offered.append(peer.node)
                self.ring.world.inject(peer.node, AnswerOffer(effect.offer, peer.node in self.accepts))
            else:
                told(peer, effect)

        self.ring.world._on_effect = on_effect
        assert self.ring.build(self.ids, 20 * MILLISECOND)
        self.run(3 * SECOND)

    def run(self, duration_ns: int) -> None:
        self.ring.world.run_for(duration_ns)

    def join(self, *nodes: NodeId, topic: NodeId = TOPIC) -> None:
        for node in nodes:
            self.ring.world.inject(node, JoinTopic(topic))

    def publish(self, node: NodeId, payload: bytes) -> list[NodeId]:
        """The receivers, sorted; no node twice."""
        self.got.clear()
        self.ring.world.inject(node, PublishTo(TOPIC, payload))
        self.run(3 * SECOND)
        receivers = [receiver for receiver, message in self.got if message.payload == payload]
        assert len(receivers) == len(set(receivers))
        return sorted(receivers)

    def violations(self) -> list[str]:
        config = self.ring.config
        return tree_violations(self.ring.machines, TOPIC, config.id_bits, config.max_children)

    @property
    def root(self) -> NodeId:
        return root_of(self.ring.members, TOPIC, self.ring.config.id_bits)


def test_every_subscriber_gets_each_publication_once_and_no_other_node_does() -> None:
    grove = Grove(1, 40)
    grove.join(*grove.ids[:12])
    grove.run(QUIET)
    assert grove.violations() == []
    assert grove.publish(grove.ids[30], b"news") == sorted(grove.ids[:12])
    assert grove.publish(grove.ids[30], b"more, straight to the root") == sorted(grove.ids[:12])


def test_a_departed_subscriber_gets_nothing_and_an_unused_tree_is_removed() -> None:
    grove = Grove(2, 30)
    grove.join(*grove.ids[:6])
    grove.run(QUIET)
    for node in grove.ids[:6]:
        assert grove.publish(grove.ids[20], node.to_bytes16())
        grove.ring.world.inject(node, LeaveTopic(TOPIC))
        grove.run(QUIET)
        assert grove.violations() == []
    assert not any(machine.scribe.topics for machine in grove.ring.machines)


def test_a_node_with_too_many_children_delegates_the_farthest_to_siblings() -> None:
    grove = Grove(3, 60)
    grove.join(*grove.ids[:50])
    grove.run(2 * QUIET)
    assert grove.violations() == []
    counts = [
        len(machine.scribe.topics[TOPIC].children) for machine in grove.ring.machines if TOPIC in machine.scribe.topics
    ]
    assert max(counts) == 16
    assert grove.publish(grove.ids[55], b"all the same") == sorted(grove.ids[:50])


def test_nothing_is_lost_while_children_move_to_siblings() -> None:
    grove = Grove(4, 40)
    grove.join(*grove.ids[:30])
    grove.run(1 * SECOND)
    for number in range(8):
        payload = b"%d" % number
        assert grove.publish(grove.ids[35], payload) == sorted(grove.ids[:30]), number
    assert grove.violations() == []


@pytest.mark.parametrize("silent", [False, True])
def test_the_successor_of_a_dead_root_has_its_state(silent: bool) -> None:
    grove = Grove(5, 40)
    grove.join(*grove.ids[:12])
    grove.ring.world.inject(grove.ids[3], AskTopic(1, TOPIC, b"nodes that may publish"))
    grove.run(QUIET)
    assert grove.answers[1].ok
    holders = [machine for machine in grove.ring.machines if TOPIC in machine.scribe.held_states]
    assert len(holders) == 6
    for _ in range(3):
        grove.ring.world.crash(grove.root, silent=silent)
        grove.run(2 * QUIET)
        assert grove.violations() == []
        living = [node for node in grove.ids[:12] if grove.ring.world.nodes[node].is_up]
        assert grove.publish(living[0], b"after") == sorted(living)
    asker = grove.ring.members[0]
    grove.ring.world.inject(asker, AskTopic(2, TOPIC))
    grove.run(3 * SECOND)
    assert (grove.answers[2].ok, grove.answers[2].state) == (True, b"nodes that may publish")


def test_only_the_owner_writes_root_state() -> None:
    grove = Grove(6, 20)
    for request, node, state in ((1, 3, b"a"), (2, 4, b"b"), (3, 3, b"c"), (4, 5, None)):
        grove.ring.world.inject(grove.ids[node], AskTopic(request, TOPIC, state))
        grove.run(2 * SECOND)
    assert [grove.answers[request].ok for request in (1, 2, 3, 4)] == [True, False, True, True]
    assert grove.answers[4].state == b"c"


def test_a_search_visits_members_depth_first_until_one_accepts() -> None:
    grove = Grove(7, 40)
    grove.join(*grove.ids[:10])
    grove.run(QUIET)
    grove.accepts = [grove.ids[4]]
    grove.ring.world.inject(grove.ids[30], SearchTopic(1, TOPIC, b"nodes with capacity?"))
    grove.run(3 * SECOND)
    end = grove.ends[1]
    assert end.peer is not None
    assert end.peer.node == grove.ids[4]
    assert len(grove.offered) == len(set(grove.offered))
    grove.accepts, grove.offered = [], []
    grove.ring.world.inject(grove.ids[30], SearchTopic(2, TOPIC, b"nodes with capacity?"))
    grove.run(3 * SECOND)
    assert grove.ends[2].peer is None
    assert sorted(grove.offered) == sorted(grove.ids[:10])


def test_a_search_in_an_empty_topic_ends() -> None:
    grove = Grove(8, 20)
    grove.ring.world.inject(grove.ids[3], SearchTopic(1, TOPIC, b"?"))
    grove.run(3 * SECOND)
    assert grove.ends[1].peer is None


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_trees_are_correct_again_after_churn_and_weather(seed: int) -> None:
    grove = Grove(seed, 40)
    random = RandomStream(seed, "churn")
    members = grove.ids[:25]
    grove.join(*members)
    grove.run(5 * SECOND)
    grove.ring.world.network.config = NetworkConfig(loss=0.02, duplicate=0.02, reorder=0.05)
    down: list[NodeId] = []
    for _ in range(14):
        up = [node for node in grove.ids if node not in down]
        if down and random.uniform() < 0.5:
            node = down.pop(0)
            grove.ring.start(node, [random.choice(up) for _ in range(3)])
            if node in members:
                grove.join(node)
        else:
            node = grove.root if random.uniform() < 0.3 else random.choice(up)
            grove.ring.world.crash(node, silent=random.uniform() < 0.5)
            down.append(node)
        grove.run(int(random.between(0.2, 4.0) * SECOND))
    grove.ring.world.network.config = NetworkConfig()
    assert grove.ring.world.run_until(lambda: not grove.violations(), 120 * SECOND, 2 * SECOND), grove.violations()
    living = sorted(node for node in members if node not in down)
    assert grove.publish(living[0], b"at last") == living
