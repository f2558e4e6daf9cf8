"""One node of a topic's tree: events in, effects out. No probes run here, so peers die only when the test says so."""

from dataclasses import replace

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.scribe import messages as wire
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
from agiledart_overlay.scribe.topic import Topic
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.messages import Departing
from tests.unit.overlay.bench import Bench, of, peer, sent

ME, NEAR, PARENT = peer(1), peer(3), peer(9)
THERE = NodeId((9 << 120) + 5)
"""A topic whose root is PARENT."""

HERE = NodeId((1 << 120) + 5)
"""A topic whose root is this node."""

BEAT_MS = OverlayConfig.lan().heartbeat_interval_ns // 1_000_000
MISSES = OverlayConfig.lan().heartbeat_misses


def planted(*others: Peer, config: OverlayConfig | None = None) -> Bench:
    """A member of a finished ring with NEAR, PARENT and others."""
    bench = Bench(1, config)
    bench.machine.adopt((NEAR, PARENT, *others), Instant(0))
    return bench


def topic(bench: Bench, key: NodeId = THERE) -> Topic:
    return bench.machine.scribe.topics[key]


def child(bench: Bench, who: Peer, key: NodeId = THERE) -> None:
    ((to, answer),) = sent(bench.receive(who, wire.Subscribe(key, 7)), wire.Subscribed)
    assert (to, answer.number) == (who, 7)


def attached(bench: Bench) -> Bench:
    """THERE is joined, PARENT has accepted."""
    ((to, asked),) = sent(bench.give(JoinTopic(THERE)), wire.Subscribe)
    assert to == PARENT
    bench.receive(PARENT, wire.Subscribed(THERE, asked.number, (PARENT.node,)))
    assert topic(bench).parent == PARENT
    return bench


def multicast(number: int = 1, payload: bytes = b"news") -> wire.Multicast:
    return wire.Multicast(THERE, NEAR, number, payload)


# ---- joining


def test_a_subscriber_asks_the_next_hop_once() -> None:
    bench = planted()
    assert len(sent(bench.give(JoinTopic(THERE)), wire.Subscribe)) == 1
    assert sent(bench.give(JoinTopic(THERE)), wire.Subscribe) == []
    assert not topic(bench).is_attached


def test_a_node_whose_id_is_zero_becomes_a_child_too() -> None:
    """It was taken for the parent of those that have none (swarm, seed 40267)."""
    bench = planted(peer(0))
    bench.give(JoinTopic(HERE))
    assert topic(bench, HERE).is_root
    child(bench, peer(0), HERE)


def test_an_unanswered_subscription_is_repeated_and_an_old_answer_undone() -> None:
    bench = planted()
    ((_, first),) = sent(bench.give(JoinTopic(THERE)), wire.Subscribe)
    (again,) = sent(bench.wait(BEAT_MS), wire.Subscribe)
    assert again[1].number != first.number
    effects = bench.receive(PARENT, wire.Subscribed(THERE, first.number, (PARENT.node,)))
    assert [to for to, _ in sent(effects, wire.Unsubscribe)] == [PARENT]
    assert not topic(bench).is_attached
    bench.receive(PARENT, wire.Subscribed(THERE, again[1].number, (PARENT.node,)))
    assert topic(bench).path_from_root(ME.node) == (PARENT.node, ME.node)


def test_the_root_asks_no_node() -> None:
    bench = planted()
    assert sent(bench.give(JoinTopic(HERE)), wire.Subscribe) == []
    assert topic(bench, HERE).is_root


def test_a_forwarder_subscribes_itself_for_the_first_child_only() -> None:
    bench = planted()
    assert [to for to, _ in sent(bench.receive(NEAR, wire.Subscribe(THERE, 1)), wire.Subscribe)] == [PARENT]
    effects = bench.receive(peer(5), wire.Subscribe(THERE, 2))
    assert sent(effects, wire.Subscribe) == []
    assert len(sent(effects, wire.Subscribed)) == 1
    assert list(topic(bench).children) == [NEAR.node, peer(5).node]


def test_the_parent_is_not_a_child() -> None:
    bench = attached(planted())
    ((to, refused),) = sent(bench.receive(PARENT, wire.Subscribe(THERE, 4)), wire.SubscribeRefused)
    assert (to, refused.number) == (PARENT, 4)
    bench.receive(PARENT, wire.Heartbeat((wire.HeartbeatEntry(THERE, (NEAR.node, PARENT.node)),)))
    assert sent(bench.receive(NEAR, wire.Subscribe(THERE, 5)), wire.SubscribeRefused)
    assert topic(bench).children == {}


def test_a_route_through_this_node_is_a_loop() -> None:
    bench = planted()
    ((_, asked),) = sent(bench.give(JoinTopic(THERE)), wire.Subscribe)
    effects = bench.receive(PARENT, wire.Subscribed(THERE, asked.number, (ME.node, PARENT.node)))
    assert [to for to, _ in sent(effects, wire.Unsubscribe)] == [PARENT]
    assert topic(bench).parent is None
    bench = attached(planted())
    effects = bench.receive(PARENT, wire.Heartbeat((wire.HeartbeatEntry(THERE, (ME.node, PARENT.node)),)))
    assert topic(bench).parent is None
    assert [to for to, _ in sent(effects, wire.Subscribe)] == [PARENT]


# ---- leaving


def test_an_unsubscribed_node_leaves_when_no_child_needs_it() -> None:
    bench = attached(planted())
    child(bench, NEAR)
    assert sent(bench.give(LeaveTopic(THERE)), wire.Unsubscribe) == []
    effects = bench.receive(NEAR, wire.Unsubscribe(THERE))
    assert [to for to, _ in sent(effects, wire.Unsubscribe)] == [PARENT]
    assert not bench.machine.scribe.topics


def test_a_dead_child_is_forgotten_and_a_dead_parent_replaced() -> None:
    bench = attached(planted())
    child(bench, NEAR)
    bench.receive(NEAR, Departing())
    assert topic(bench).children == {}
    bench.receive(PARENT, Departing())
    assert topic(bench).parent is None
    assert topic(bench).asked is None, "no other node is nearer to the key"


# ---- repair


def test_a_silent_parent_is_left() -> None:
    bench = attached(planted())
    bench.wait(MISSES * BEAT_MS)
    assert topic(bench).parent == PARENT
    assert sent(bench.wait(2 * BEAT_MS), wire.Subscribe)
    assert topic(bench).parent is None


def test_any_heartbeat_or_publication_keeps_the_parent() -> None:
    bench = attached(planted())
    for number in range(2 * MISSES):
        bench.wait(BEAT_MS)
        if number % 2:
            bench.receive(PARENT, multicast(number))
        else:
            effects = bench.receive(PARENT, wire.Heartbeat((wire.HeartbeatEntry(THERE, (PARENT.node,)),)))
            assert sent(effects, wire.HeartbeatAck) == [(PARENT, wire.HeartbeatAck((THERE,)))]
    assert topic(bench).parent == PARENT


def test_a_silent_child_is_forgotten() -> None:
    bench = attached(planted())
    child(bench, NEAR)
    beats = sent(bench.wait((MISSES + 1) * BEAT_MS), wire.Heartbeat)
    assert [to for to, _ in beats].count(NEAR) >= MISSES
    assert NEAR.node in topic(bench).children
    bench.wait(BEAT_MS)
    assert topic(bench).children == {}


def test_a_child_that_denies_its_parent_is_forgotten() -> None:
    bench = attached(planted())
    child(bench, NEAR)
    for _ in range(MISSES):
        bench.receive(NEAR, wire.HeartbeatAck(()))
        assert NEAR.node in topic(bench).children
    bench.receive(NEAR, wire.HeartbeatAck(()))
    assert topic(bench).children == {}


def test_the_route_is_forwarded_when_it_changes() -> None:
    bench = attached(planted())
    child(bench, NEAR)
    above = peer(12).node
    effects = bench.receive(PARENT, wire.Heartbeat((wire.HeartbeatEntry(THERE, (above, PARENT.node)),)))
    ((to, beat),) = sent(effects, wire.Heartbeat)
    assert (to, beat.lines[0].root_path) == (NEAR, (above, PARENT.node, ME.node))
    effects = bench.receive(PARENT, wire.Heartbeat((wire.HeartbeatEntry(THERE, (above, PARENT.node)),)))
    assert sent(effects, wire.Heartbeat) == []


# ---- publications


def test_a_publication_goes_to_each_child_once_and_to_the_parent() -> None:
    bench = attached(planted())
    for who in (NEAR, peer(5)):
        child(bench, who)
    effects = bench.receive(PARENT, multicast())
    assert [to for to, _ in sent(effects, wire.Multicast)] == [NEAR, peer(5)]
    assert [each.payload for each in of(effects, TopicMessage)] == [b"news"]
    assert not of(bench.receive(PARENT, multicast()), TopicMessage), "a repetition"
    assert not sent(bench.receive(PARENT, multicast()), wire.Multicast)


def test_a_forwarder_keeps_nothing_for_itself() -> None:
    bench = planted()
    effects = bench.receive(NEAR, wire.Subscribe(THERE, 1))
    ((_, asked),) = sent(effects, wire.Subscribe)
    bench.receive(PARENT, wire.Subscribed(THERE, asked.number, (PARENT.node,)))
    effects = bench.receive(PARENT, multicast())
    assert len(sent(effects, wire.Multicast)) == 1
    assert of(effects, TopicMessage) == []


def test_only_the_parent_is_trusted() -> None:
    bench = attached(planted())
    assert of(bench.receive(NEAR, multicast()), TopicMessage) == []
    assert dict(bench.machine.statistics().dropped)["multicast-stranger"] == 1


def test_a_publication_is_repeated_until_the_root_has_it_then_sent_directly() -> None:
    bench = planted(peer(20))
    ((to, first),) = sent(bench.give(PublishTo(THERE, b"x")), wire.Publish)
    assert to == PARENT
    retry_ms = OverlayConfig.lan().record_retry_ns // 1_000_000
    repeated = sent(bench.wait(retry_ms), wire.Publish)
    assert [message.number for _, message in repeated] == [first.number]
    bench.receive(peer(20), wire.Published(THERE, first.number))
    assert sent(bench.wait(4 * retry_ms), wire.Publish) == []
    ((to, _),) = sent(bench.give(PublishTo(THERE, b"y")), wire.Publish)
    assert to == peer(20), "the node that answered as root"


def test_an_unconfirmed_publication_is_given_up_and_counted() -> None:
    bench = planted()
    bench.give(PublishTo(THERE, b"x"))
    retry_ms = OverlayConfig.lan().record_retry_ns // 1_000_000
    bench.wait(10 * retry_ms)
    assert dict(bench.machine.statistics().dropped)["publish-undelivered"] == 1
    assert sent(bench.wait(10 * retry_ms), wire.Publish) == []


def test_the_root_sends_a_publication_down_and_confirms() -> None:
    bench = planted()
    bench.give(JoinTopic(HERE))
    child(bench, NEAR, HERE)
    effects = bench.receive(PARENT, wire.Publish(HERE, PARENT, 3, 1, b"z"))
    assert sent(effects, wire.Published) == [(PARENT, wire.Published(HERE, 3))]
    assert [to for to, _ in sent(effects, wire.Multicast)] == [NEAR]
    assert len(of(effects, TopicMessage)) == 1


# ---- too many children


def test_the_farthest_child_is_offered_to_its_siblings_and_stays_until_moved() -> None:
    bench = attached(planted(config=replace(OverlayConfig.lan(), max_children=2)))
    for number in (3, 5, 6):
        child(bench, peer(number))
    ((to, dropped),) = sent(bench.wait(BEAT_MS), wire.ChildDropped)
    siblings = [sibling.peer for sibling in dropped.siblings]
    assert to not in siblings
    assert sorted([to.node, *(each.node for each in siblings)]) == [peer(number).node for number in (3, 5, 6)]
    assert len(topic(bench).children) == 3, "it stays until it has gone"
    bench.receive(to, wire.Unsubscribe(THERE))
    for each in siblings:
        bench.receive(each, wire.HeartbeatAck((THERE,)))
    assert sent(bench.wait(BEAT_MS), wire.ChildDropped) == []


def test_a_delegated_child_takes_the_nearest_route_through_a_sibling() -> None:
    near, far = peer(5), peer(6)
    bench = attached(planted(near, far))
    effects = bench.receive(
        PARENT, wire.ChildDropped(THERE, (wire.Sibling(far, 1_000), wire.Sibling(near, 9_000), wire.Sibling(ME, 1)))
    )
    probes = {to.node: message.number for to, message in sent(effects, wire.SiblingProbe)}
    assert sorted(probes) == [near.node, far.node]
    bench.wait(5)
    bench.receive(near, wire.SiblingAck(probes[near.node]))  # 5 + 9 ms
    bench.wait(45)
    effects = bench.receive(far, wire.SiblingAck(probes[far.node]))  # 50 + 1 ms
    ((to, asked),) = sent(effects, wire.Subscribe)
    assert to == near
    assert topic(bench).parent == PARENT, "until the sibling has accepted"
    effects = bench.receive(near, wire.Subscribed(THERE, asked.number, (PARENT.node, near.node)))
    assert [to for to, _ in sent(effects, wire.Unsubscribe)] == [PARENT]
    assert topic(bench).parent == near


def test_siblings_that_refuse_or_are_silent_leave_the_child_in_place() -> None:
    near, far = peer(5), peer(6)
    bench = attached(planted(near, far))
    effects = bench.receive(PARENT, wire.ChildDropped(THERE, (wire.Sibling(near, 1), wire.Sibling(far, 1))))
    probes = {to.node: message.number for to, message in sent(effects, wire.SiblingProbe)}
    bench.receive(near, wire.SiblingAck(probes[near.node]))
    ((to, asked),) = sent(bench.wait(1_000), wire.Subscribe)
    assert to == near
    bench.receive(near, wire.SubscribeRefused(THERE, asked.number))
    assert topic(bench).parent == PARENT


def test_siblings_named_by_an_unknown_node_are_not_asked() -> None:
    bench = attached(planted(peer(5)))
    assert sent(bench.receive(NEAR, wire.ChildDropped(THERE, (wire.Sibling(peer(5), 1),))), wire.SiblingProbe) == []


# ---- searches


def test_a_search_is_offered_here_then_goes_to_a_child_and_back() -> None:
    bench = attached(planted())
    child(bench, NEAR)
    asked = wire.Anycast(THERE, PARENT, 8, b"room?", (PARENT.node,), (PARENT,), 1)
    (offered,) = of(bench.receive(PARENT, asked), Offered)
    assert offered.origin == PARENT
    ((to, onward),) = sent(bench.give(AnswerOffer(offered.offer, False)), wire.Anycast)
    assert to == NEAR
    assert onward.visited == (PARENT.node, ME.node)
    assert onward.stack == (PARENT, ME)
    back = wire.Anycast(THERE, PARENT, 8, b"room?", (*onward.visited, NEAR.node), (PARENT,), 3)
    ((to, onward),) = sent(bench.receive(NEAR, back), wire.Anycast)
    assert (to, onward.stack) == (PARENT, ())


def test_a_node_that_accepts_notifies_the_origin() -> None:
    bench = attached(planted())
    (offered,) = of(bench.receive(NEAR, wire.Anycast(THERE, NEAR, 8, b"?")), Offered)
    assert sent(bench.give(AnswerOffer(offered.offer, True)), wire.AnycastEnd) == [(NEAR, wire.AnycastEnd(8, True, 0))]
    assert bench.give(AnswerOffer(offered.offer, True)) == [], "answered once"


def test_an_unanswered_search_ends() -> None:
    bench = planted()
    bench.give(SearchTopic(4, THERE, b"?"))
    (end,) = of(bench.wait(60_000), SearchEnded)
    assert (end.request, end.peer) == (4, None)


# ---- roots


def test_root_state_is_copied_to_the_nearest_leaves() -> None:
    others = [peer(number) for number in range(20, 30)]
    bench = planted(*others)
    effects = bench.give(AskTopic(1, HERE, b"mine"))
    (answer,) = of(effects, TopicAnswer)
    assert (answer.ok, answer.owner) == (True, ME)
    copies = sent(effects, wire.RootCopy)
    assert len(dict.fromkeys(to.node for to, _ in copies)) == OverlayConfig.lan().root_replicas
    effects = bench.receive(NEAR, wire.TopicRequest(HERE, NEAR, 5, 1, b"theirs"))
    ((_, reply),) = sent(effects, wire.TopicReply)
    assert (reply.ok, reply.state) == (False, b"mine")
