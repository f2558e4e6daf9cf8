"""Routed messages: acknowledged, repeated, led around, never delivered to the second closest."""

from agiledart_kernel.machine import CancelTimer
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire.effects import Delivered, Forwarding
from agiledart_overlay.wire.events import RouteMessage
from tests.unit.overlay.bench import Bench, of, peer, sent


def test_a_message_to_the_own_key_is_delivered_locally() -> None:
    bench = Bench(1).found()
    (delivered,) = of(bench.give(RouteMessage(NodeId(3), b"x")), Delivered)
    assert delivered.path == (bench.machine.me,)
    assert delivered.source == bench.machine.me


def test_a_hop_is_sent_and_repeated_until_acknowledged() -> None:
    bench = Bench(1).adopt(peer(2), peer(100))
    effects = bench.give(RouteMessage(peer(100).node, b"x"))
    (forwarding,) = of(effects, Forwarding)
    assert (forwarding.previous, forwarding.next, forwarding.source) == (None, peer(100), bench.machine.me)
    ((to, first),) = sent(effects, wire.RouteHop)
    assert to == peer(100)
    repeats = sent(bench.wait(700), wire.RouteHop)
    assert repeats
    assert all(message == first for _, message in repeats)
    bench.receive(peer(100), wire.RouteAck(first.number))
    assert sent(bench.wait(1_000), wire.RouteHop) == []


def test_an_acknowledged_hop_leaves_no_timer() -> None:
    bench = Bench(1).adopt(peer(2), peer(100))
    messages = [
        sent(bench.give(RouteMessage(peer(100).node, payload)), wire.RouteHop)[0][1]
        for payload in (b"first", b"second")
    ]
    hops = CancelTimer(("overlay", "hops"))
    assert hops not in bench.receive(peer(100), wire.RouteAck(messages[0].number)), "the other one still waits"
    assert hops in bench.receive(peer(100), wire.RouteAck(messages[1].number))


def test_a_repeated_hop_is_forwarded_once() -> None:
    bench = Bench(1).adopt(peer(2), peer(100))
    message = wire.RouteHop(5, peer(1).node, b"x", (peer(2),))
    effects = bench.receive(peer(2), message)
    assert of(effects, Delivered)[0].path == (peer(2), bench.machine.me)
    effects = bench.receive(peer(2), message)
    assert sent(effects, wire.RouteAck) == [(peer(2), wire.RouteAck(5))]
    assert of(effects, Delivered) == []


def test_the_closest_node_is_waited_for_until_it_is_declared_dead() -> None:
    bench = Bench(1).adopt(peer(2), peer(100))
    bench.give(RouteMessage(peer(100).node, b"x"))
    effects = bench.wait(1_000)
    assert of(effects, Delivered) == [], "a silent leaf may still be the right one"
    (delivered,) = of(bench.wait(6_000), Delivered)
    assert delivered.path == (bench.machine.me,)


def test_a_path_that_does_not_end_with_the_sender_is_dropped() -> None:
    bench = Bench(1).adopt(peer(2))
    assert bench.receive(peer(2), wire.RouteHop(5, peer(1).node, b"x", (peer(3),))) == []
    assert ("route-path", 1) in bench.machine.statistics().dropped


def test_a_message_in_a_routing_loop_ends() -> None:
    bench = Bench(1).adopt(peer(2), peer(100))
    path = tuple(peer(2) for _ in range(64))
    effects = bench.receive(peer(2), wire.RouteHop(5, peer(100).node, b"x", path))
    assert sent(effects, wire.RouteHop) == []
    assert ("route-ttl", 1) in bench.machine.statistics().dropped


def test_a_non_member_routes_nothing() -> None:
    bench = Bench(1)
    assert bench.give(RouteMessage(NodeId(3), b"x")) == []
    assert bench.receive(peer(2), wire.RouteHop(5, peer(1).node, b"x", (peer(2),))) == []
