"""Stages of a check, refutation, incarnations; one machine and hand-made messages."""

from agiledart_kernel.counts import MAX_COUNT
from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import CancelTimer, LinkLost, TimerFired
from agiledart_overlay.liveness.checks import suspicion_ns
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire.effects import JoinFailed, PeerFailed, PeerLeft
from agiledart_overlay.wire.ring_messages import LeaseGranted, RenewLease
from tests.unit.overlay.bench import Bench, of, peer, sent


def answer_probes(bench: Bench, silent: int, milliseconds: int) -> None:
    """Let time pass in which everybody but one answers probes and requests for leases."""
    for _ in range(milliseconds // 10):
        effects = bench.wait(10)
        for to, probe in sent(effects, wire.PeerProbe):
            if to != peer(silent):
                bench.receive(to, wire.ProbeAck(probe.number, 0, joined=True))
        for to, renew in sent(effects, RenewLease):
            if to != peer(silent):
                bench.receive(to, LeaseGranted(renew.to_predecessor, renew.at, renew.name))


def test_a_silent_peer_goes_through_all_stages() -> None:
    bench = Bench().adopt(peer(2), peer(3), peer(4))
    answer_probes(bench, 3, 5_000)
    asked = {to for to, message in sent(bench.effects, wire.IndirectProbe) if message.target == peer(3)}
    assert asked == {peer(2), peer(4)}
    suspected = {to for to, message in sent(bench.effects, wire.Suspect) if message.target == peer(3)}
    assert suspected == {peer(2), peer(3), peer(4)}, "the suspect is notified too, so that it can refute"
    assert of(bench.effects, PeerFailed) == [PeerFailed(peer(3), "silent")]
    assert {to for to, _ in sent(bench.effects, wire.DeclaredFailed)} == {peer(2), peer(4)}
    assert not bench.machine.is_alive(peer(3).node)
    assert peer(3) not in bench.machine.known_peers()


def test_a_lost_link_starts_indirect_probes_and_is_no_proof() -> None:
    bench = Bench().adopt(peer(2), peer(3))
    effects = bench.give(LinkLost(peer(3).node))
    assert [to for to, _ in sent(effects, wire.IndirectProbe)] == [peer(2)]
    ((to, probe),) = sent(effects, wire.PeerProbe)
    assert to == peer(3)
    effects = bench.receive(peer(3), wire.ProbeAck(probe.number, 0, joined=True))
    assert CancelTimer(("overlay", "checks")) in effects, "no peer is examined any more"
    answer_probes(bench, 0, 4_000)
    assert of(bench.effects, PeerFailed) == []


def test_a_killed_peer_is_declared_within_two_seconds() -> None:
    bench = Bench().adopt(peer(2))
    bench.give(LinkLost(peer(2).node))
    answer_probes(bench, 2, 1_500)
    assert of(bench.effects, PeerFailed) == [PeerFailed(peer(2), "link")]


def test_a_peer_whose_machine_refuses_two_nodes_is_declared_at_once() -> None:
    bench = Bench().adopt(peer(2), peer(3), peer(4))
    effects = bench.give(LinkLost(peer(3).node, refused=True))
    assert {to for to, _ in sent(effects, wire.IndirectProbe)} == {peer(2), peer(4)}
    assert {to for to, _ in sent(effects, wire.Suspect)} == {peer(2), peer(3), peer(4)}
    bench.give(LinkLost(peer(3).node, refused=True))
    answer_probes(bench, 3, 500)
    assert of(bench.effects, PeerFailed) == [], "it may be refused to this node only"
    bench.receive(peer(2), wire.ConfirmSuspicion(peer(3).node, peer(3).incarnation, 0))
    answer_probes(bench, 3, 100)
    assert of(bench.effects, PeerFailed) == [PeerFailed(peer(3), "link")]


def test_one_refusal_counts_as_a_lost_link() -> None:
    bench = Bench().adopt(peer(2), peer(3), peer(4))
    bench.give(LinkLost(peer(3).node, refused=True))
    bench.receive(peer(2), wire.ConfirmSuspicion(peer(3).node, peer(3).incarnation, 0))
    answer_probes(bench, 3, 900)
    assert of(bench.effects, PeerFailed) == []


def test_a_peer_that_a_helper_reaches_is_not_declared_dead_for_refusing() -> None:
    bench = Bench().adopt(peer(2), peer(3), peer(4))
    for _ in range(20):
        bench.give(LinkLost(peer(3).node, refused=True))
        bench.receive(peer(2), wire.IndirectProbeAck(0, peer(3).node, 0))
        answer_probes(bench, 3, 100)
    assert of(bench.effects, PeerFailed) == []


def test_a_helpers_answer_saves_a_peer() -> None:
    bench = Bench().adopt(peer(2), peer(3))
    bench.give(LinkLost(peer(3).node))
    for _ in range(40):
        for to, request in sent(bench.wait(100), wire.IndirectProbe):
            bench.receive(to, wire.IndirectProbeAck(request.number, peer(3).node, 0))
        bench.receive(peer(2), wire.ProbeAck(0, 0, joined=True))
        bench.receive(peer(2), wire.IndirectProbeAck(0, peer(3).node, 0))
    assert of(bench.effects, PeerFailed) == []


def test_a_rumour_alone_declares_no_peer_dead() -> None:
    bench = Bench().adopt(peer(2), peer(3))
    effects = bench.receive(peer(2), wire.DeclaredFailed(peer(3), 0))
    ((_, probe), *_) = sent(effects, wire.PeerProbe)
    bench.receive(peer(3), wire.ProbeAck(probe.number, 0, joined=True))
    answer_probes(bench, 0, 3_000)
    assert of(bench.effects, PeerFailed) == []
    bench.receive(peer(2), wire.DeclaredFailed(peer(3), 0))
    answer_probes(bench, 3, 300)
    assert of(bench.effects, PeerFailed) == [], "two lost probes are no proof: helpers are asked"
    answer_probes(bench, 3, 500)
    assert of(bench.effects, PeerFailed) == [PeerFailed(peer(3), "rumour")]


def test_the_suspect_refutes_with_a_higher_number() -> None:
    bench = Bench().adopt(peer(2), peer(3))
    effects = bench.receive(peer(2), wire.Suspect(bench.machine.me, 0))
    assert {(to, message.refutations) for to, message in sent(effects, wire.Refute)} == {(peer(2), 1), (peer(3), 1)}
    again = bench.receive(peer(3), wire.Suspect(bench.machine.me, 0))
    assert [(to, message.refutations) for to, message in sent(again, wire.Refute)] == [(peer(3), 1)]


def test_a_suspicion_with_the_largest_number_ends_this_incarnation() -> None:
    """Counting on from it, this node could soon say nothing that its peers can read."""
    bench = Bench().adopt(peer(2), peer(3))
    (failed,) = of(bench.receive(peer(2), wire.Suspect(bench.machine.me, MAX_COUNT)), JoinFailed)
    assert f"refuted its death {MAX_COUNT} times" in failed.reason


def test_a_node_that_knows_the_refutation_notifies_others() -> None:
    """The way from the suspect to the one that suspects it may be broken for good."""
    bench = Bench().adopt(peer(2), peer(3))
    bench.receive(peer(3), wire.Refute(2))
    effects = bench.receive(peer(2), wire.Suspect(peer(3), 1))
    assert sent(effects, wire.IndirectProbeAck) == [(peer(2), wire.IndirectProbeAck(0, peer(3).node, 2))]
    assert sent(bench.receive(peer(2), wire.Suspect(peer(3), 2)), wire.IndirectProbeAck) == []


def test_an_old_suspicion_of_another_incarnation_is_not_answered() -> None:
    bench = Bench(incarnation=5).adopt(peer(2))
    effects = bench.receive(peer(2), wire.Suspect(peer(1, 4), 0))
    assert sent(effects, wire.Refute) == []


def buried(bench: Bench) -> Bench:
    bench.adopt(peer(2), peer(3))
    bench.give(LinkLost(peer(3).node))
    answer_probes(bench, 3, 3_000)
    assert not bench.machine.is_alive(peer(3).node)
    return bench


def test_a_peer_declared_dead_is_notified_and_returns_by_refuting() -> None:
    bench = buried(Bench())
    effects = bench.receive(peer(3), wire.PeerProbe(9, 0, joined=True))
    assert sent(effects, wire.Accused) == [(peer(3), wire.Accused(0, 1))]
    assert not bench.machine.is_alive(peer(3).node)
    bench.receive(peer(3), wire.Announce(10, 1, ()))
    assert bench.machine.is_alive(peer(3).node)


def test_a_node_that_believes_a_dead_peer_alive_is_notified() -> None:
    bench = buried(Bench())
    obituary = [(peer(2), wire.DeclaredFailed(peer(3), 0))]
    for words in (
        wire.IndirectProbe(9, peer(3)),
        wire.LeafRequest(9, 0, joined=True, sightings=(wire.Sighting(peer(3), 0),)),
        wire.Suspect(peer(3), 0),
    ):
        assert sent(bench.receive(peer(2), words), wire.DeclaredFailed) == obituary
    listed = wire.LeafRequest(9, 0, joined=True, sightings=(wire.Sighting(peer(3), 1),))
    assert sent(bench.receive(peer(2), listed), wire.DeclaredFailed) == [], "it has refuted since"


def test_both_ring_neighbours_of_a_dead_node_notify_their_leaves() -> None:
    """Also the one that received it: the farthest leaf on its side is no leaf of the other one."""
    bench = Bench().adopt(*(peer(number) for number in range(2, 60)))
    bench.receive(peer(3), wire.DeclaredFailed(peer(2), 0))
    told = {to for to, message in sent(bench.wait(900), wire.DeclaredFailed) if message.target == peer(2)}
    assert len(told) == 23, "all of them but the dead"
    bench.receive(peer(3), wire.DeclaredFailed(peer(9), 0))
    assert peer(9) not in {message.target for _, message in sent(bench.wait(900), wire.DeclaredFailed)}


def test_gossip_does_not_revive_dead_nodes() -> None:
    bench = buried(Bench())
    state = (wire.Sighting(peer(3), 0),)
    assert sent(bench.receive(peer(2), wire.LeafState(1, 0, joined=True, sightings=state)), wire.PeerProbe) == []
    later = (wire.Sighting(peer(3), 1),)
    effects = bench.receive(peer(2), wire.LeafState(1, 0, joined=True, sightings=later))
    assert [to for to, _ in sent(effects, wire.PeerProbe)] == [peer(3)], "a later refutation is worth a look"
    assert not bench.machine.is_alive(peer(3).node)


def test_a_new_incarnation_ends_the_old_one_at_once() -> None:
    bench = Bench().adopt(peer(2), peer(3))
    effects = bench.receive(peer(3, 2), wire.Announce(1, 0, ()))
    assert of(effects, PeerFailed) == [PeerFailed(peer(3, 1), "restarted")]
    assert bench.machine.is_alive(peer(3).node)
    (said,) = bench.receive(peer(3, 1), wire.Announce(2, 9, ()))
    assert sent([said], wire.JoinRefused) == [(peer(3, 1), wire.JoinRefused(0, "incarnation", 2))], (
        "an old life is over"
    )
    assert bench.receive(peer(3, 1), wire.RouteAck(2)) == [], "words of the old life come too late"
    assert ("old-life", 2) in bench.machine.statistics().dropped


def test_a_leave_message_is_no_failure_and_final() -> None:
    bench = Bench().adopt(peer(2), peer(3))
    assert of(bench.receive(peer(3), wire.Departing()), PeerLeft) == [PeerLeft(peer(3))]
    assert not bench.machine.is_alive(peer(3).node)
    bench.receive(peer(3), wire.Announce(2, 99, ()))
    assert not bench.machine.is_alive(peer(3).node)
    bench.receive(peer(3, 2), wire.Announce(2, 0, ()))
    assert bench.machine.is_alive(peer(3).node)


def test_a_late_timer_restarts_unfinished_checks() -> None:
    """It slept between its probe and the deadline: no verdict."""
    bench = Bench().adopt(peer(2))
    bench.give(LinkLost(peer(2).node))
    bench.wait(300)
    deadline = bench.timers.pop(("overlay", "checks"))
    bench.now = deadline + 3 * SECOND
    effects = bench.machine.step(TimerFired(("overlay", "checks")), Instant(bench.now))
    assert of(effects, PeerFailed) == []
    assert sent(effects, wire.PeerProbe)[0][0] == peer(2)


def test_suspicion_shortens_with_each_confirmation() -> None:
    waits = [suspicion_ns(count, 3, 1_000, 2_000) for count in range(5)]
    assert waits == [2_000, 1_500, 1_208, 1_000, 1_000]
    assert suspicion_ns(0, 0, 1_000, 2_000) == 1_000, "no node could confirm, so waiting longer brings nothing"
    assert suspicion_ns(1, 1, 1_000, 2_000) == 1_000
