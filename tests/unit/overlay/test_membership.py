"""Joining and admitting; one machine and hand-made messages."""

from agiledart_kernel.instants import MILLISECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.tables.arc import arc_between
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire import ring_messages as ring
from agiledart_overlay.wire.effects import (
    JoinCompleted,
    JoinFailed,
    LeaveCompleted,
    NeighboursChanged,
    PeerFailed,
    PeerLeft,
    Rejoining,
)
from agiledart_overlay.wire.events import JoinRing, LeaveRing
from tests.unit.overlay.bench import Bench, of, peer, sent

MASK = (1 << 128) - 1
TICKET = (peer(4).node, 1, 7)


def test_the_first_node_bootstraps_a_ring() -> None:
    bench = Bench()
    assert bench.claim() is None
    assert of(bench.give(JoinRing(())), JoinCompleted) == [JoinCompleted()]
    assert bench.machine.joined
    assert bench.machine.next_hop(peer(77).node) is None


def test_a_join_step_by_step() -> None:
    bench = Bench(5)
    effects = bench.give(JoinRing((peer(2), peer(9))))
    assert [to for to, _ in sent(effects, wire.PeerProbe)] == [peer(2), peer(9)]
    assert sent(bench.receive(peer(9), wire.ProbeAck(1, 0, joined=False)), wire.JoinRequest) == []
    effects = bench.receive(peer(2), wire.ProbeAck(1, 0, joined=True))
    ((_, request),) = sent(effects, wire.JoinRequest)
    assert request.joiner == bench.machine.me
    call = ring.InviteJoiner(TICKET, 0, (wire.Sighting(peer(3)),))
    assert sent(bench.receive(peer(4), call), ring.JoinerReady) == [(peer(4), ring.JoinerReady(TICKET))]
    assert bench.claim() is None, "it answers for nothing before it is offered its place"
    effects = bench.receive(peer(7), ring.OfferRange(TICKET, 0, (wire.Sighting(peer(8)),)))
    ((range_owner, taken),) = sent(effects, ring.RangeTaken)
    assert range_owner == peer(4)
    assert bench.claim() == arc_between(peer(4).node, peer(5).node, peer(7).node, MASK), "provisionally"
    assert not bench.machine.joined
    effects = bench.receive(peer(4), ring.AdmissionConfirmed(TICKET, taken.at, (0, peer(2).node)))
    assert of(effects, JoinCompleted)
    assert of(effects, NeighboursChanged)
    assert [to for to, _ in sent(effects, ring.RenewLease)] == [peer(7)], (
        "only now its successor takes it for its neighbour"
    )
    assert {to for to, _ in sent(effects, wire.Announce)} == {peer(3), peer(4), peer(7), peer(8)}
    assert [each.node for each in bench.machine.known_peers()] == [peer(4).node, peer(7).node]


def called(bench: Bench) -> Bench:
    bench.give(JoinRing((peer(2),)))
    bench.receive(peer(2), wire.ProbeAck(1, 0, joined=True))
    bench.receive(peer(4), ring.InviteJoiner(TICKET, 0, ()))
    return bench


def test_an_ended_admission_never_begins_again() -> None:
    """Copies of it and of its Place, kept back by two links, would let the joiner deliver keys that no owner keeps free
    for it.
    """
    bench = called(Bench(5))
    bench.wait(2_500)
    other = (peer(6).node, 1, 1)
    assert sent(bench.receive(peer(6), ring.InviteJoiner(other, 0, ())), ring.JoinerReady)
    bench.wait(2_500)
    assert sent(bench.receive(peer(4), ring.InviteJoiner(TICKET, 0, ())), ring.JoinerBusy) == [
        (peer(4), ring.JoinerBusy(TICKET))
    ]
    bench.receive(peer(7), ring.OfferRange(TICKET, 0, ()))
    assert bench.claim() is None
    later = (TICKET[0], TICKET[1], TICKET[2] + 1)
    assert sent(bench.receive(peer(4), ring.InviteJoiner(later, 0, ())), ring.JoinerReady) == [
        (peer(4), ring.JoinerReady(later))
    ]


def test_an_admission_from_before_a_rejoin_does_not_begin_after_it() -> None:
    """Its range owner never confirmed it, so it joins again; then two links release copies of the call and of the place."""
    bench = called(Bench(5))
    bench.receive(peer(7), ring.OfferRange(TICKET, 0, ()))
    assert bench.claim() is not None
    bench.wait(3_000)
    bench.receive(peer(4), ring.InviteJoiner(TICKET, 0, ()))
    bench.receive(peer(7), ring.OfferRange(TICKET, 0, ()))
    assert bench.claim() is None


def test_a_repeated_admission_does_not_lengthen_the_lease() -> None:
    """The range owner counts from the first `JoinerReady`; so must the joiner, or it would deliver for too long."""
    bench = called(Bench(5))
    bench.wait(900)
    bench.receive(peer(4), ring.InviteJoiner(TICKET, 0, ()))
    bench.wait(1_000)
    bench.receive(peer(7), ring.OfferRange(TICKET, 0, ()))
    assert bench.claim() is not None
    assert bench.machine.claim_ends == 1_980 * MILLISECOND, "0.99 of 2 s after the first answer"


def test_without_confirmation_a_member_stops_and_joins_again() -> None:
    bench = called(Bench(5))
    bench.receive(peer(7), ring.OfferRange(TICKET, 0, ()))
    assert bench.claim() is not None
    assert len(sent(bench.wait(1_985), ring.RangeTaken)) >= 7, "repeated"
    assert bench.claim() is None
    effects = bench.wait(1_000)
    assert sent(effects, wire.PeerProbe), "it looks for the ring again"
    assert of(effects, Rejoining) == [], "it was not in"
    bench.receive(peer(4), ring.AdmissionConfirmed(TICKET, 0, (0, peer(2).node)))
    assert not bench.machine.joined


def test_a_joiner_waits_for_its_confirmation_as_long_as_it_may_come() -> None:
    """Where every process is slow, the offer comes late, and the range owner counts from a moment shortly before it."""
    bench = called(Bench(5))
    bench.wait(1_900)
    ((_, taken),) = sent(bench.receive(peer(7), ring.OfferRange(TICKET, 0, ())), ring.RangeTaken)
    bench.wait(1_500)
    assert bench.claim() is None, "it delivers no longer than before"
    assert of(bench.receive(peer(4), ring.AdmissionConfirmed(TICKET, taken.at, (0, peer(2).node))), JoinCompleted), (
        "its range owner has it as successor, and would have to find out that it has left"
    )


def test_a_joiner_admitted_by_a_lost_range_owner_is_no_duplicate_of_itself() -> None:
    """Others met it meanwhile, under the number that it has: it outranks that, and does not end."""
    bench = called(Bench(5))
    bench.wait(3_000)
    ((_, request),) = sent(bench.receive(peer(2), wire.ProbeAck(1, 0, joined=True)), wire.JoinRequest)
    assert request.refutations == 0
    effects = bench.receive(peer(2), wire.JoinRefused(request.attempt, "incarnation", bench.machine.me.incarnation))
    assert of(effects, JoinFailed) == []
    ((_, again),) = sent(bench.receive(peer(2), wire.ProbeAck(1, 0, joined=True)), wire.JoinRequest)
    assert again.refutations == 1
    later = wire.JoinRefused(again.attempt, "incarnation", bench.machine.me.incarnation + 1)
    assert of(bench.receive(peer(2), later), JoinFailed), "a later life is another matter"


def test_one_admission_at_a_time() -> None:
    bench = called(Bench(5))
    other = (peer(3).node, 1, 8)
    assert sent(bench.receive(peer(3), ring.InviteJoiner(other, 0, ())), ring.JoinerBusy) == [
        (peer(3), ring.JoinerBusy(other))
    ]
    bench.wait(2_100)
    assert sent(bench.receive(peer(3), ring.InviteJoiner(other, 0, ())), ring.JoinerReady) == [
        (peer(3), ring.JoinerReady(other))
    ]


def test_an_offer_that_comes_too_late_is_not_taken() -> None:
    bench = called(Bench(5))
    bench.wait(1_981)
    assert sent(bench.receive(peer(7), ring.OfferRange(TICKET, 0, ())), ring.RangeTaken) == []
    assert bench.claim() is None


def test_a_joiner_that_denied_its_admission_keeps_to_the_denial() -> None:
    bench = called(Bench(5))
    effects = bench.receive(peer(7), ring.QueryTransfer(TICKET, bench.machine.me))
    assert sent(effects, ring.RevokeTransfer) == [(peer(7), ring.RevokeTransfer(TICKET))]
    assert sent(bench.receive(peer(7), ring.OfferRange(TICKET, 0, ())), ring.RangeTaken) == []


def request(joiner: Peer, refutations: int = 0) -> wire.JoinRequest:
    return wire.JoinRequest(joiner, 1, refutations=refutations)


def admitted(effects: list) -> list:  # type: ignore[type-arg]
    return [to.node for to, _ in sent(effects, ring.InviteJoiner)]


def test_one_joiner_at_a_time() -> None:
    bench = Bench(1).found()
    first, second, third = peer(5), peer(6), peer(7)
    ((_, call),) = sent(bench.receive(first, request(first)), ring.InviteJoiner)
    for joiner in (second, third):
        effects = bench.receive(joiner, request(joiner))
        assert admitted(effects) == []
        assert [to for to, _ in sent(effects, ring.JoinQueued)] == [joiner]
    whole = bench.claim()
    assert whole is not None
    assert whole.length == MASK + 1, "a call promises nothing"
    effects = bench.receive(first, ring.JoinerReady(call.ticket))
    assert sent(effects, ring.OfferRange)[0][0] == first, "in a ring of one it is its own successor"
    kept = bench.claim()
    assert kept is not None
    assert not kept.holds(first.node, MASK), "it has stopped for the keys of the joiner"
    ((_, confirmed),) = sent(bench.receive(first, ring.RangeTaken(call.ticket, 7, 0)), ring.AdmissionConfirmed)
    assert [handed_over.joiner for handed_over in confirmed.queued_joins] == [second, third], (
        "they lie beyond the new member"
    )
    assert confirmed.at == 7


def test_a_key_range_is_revoked_only_after_the_joiner_has_stopped() -> None:
    bench = Bench(1).found()
    joiner = peer(5)
    ((_, call),) = sent(bench.receive(joiner, request(joiner)), ring.InviteJoiner)
    bench.receive(joiner, ring.JoinerReady(call.ticket))
    kept = bench.claim()
    bench.wait(1_990)
    assert bench.claim() == kept
    bench.wait(20)
    whole = bench.claim()
    assert whole is not None
    assert whole.length == MASK + 1
    effects = bench.receive(joiner, ring.RangeTaken(call.ticket, 7, 0))
    assert sent(effects, ring.AdmissionExpired) == [(joiner, ring.AdmissionExpired(call.ticket))]


def test_a_joiner_that_vanishes_frees_its_slot() -> None:
    bench = Bench(1).found()
    bench.receive(peer(5), request(peer(5)))
    bench.receive(peer(6), request(peer(6)))
    assert peer(6).node in admitted(bench.wait(1_100))


def test_the_queue_is_bounded() -> None:
    bench = Bench(1).found()
    for number in range(2, 68):
        bench.receive(peer(number), request(peer(number)))
    effects = bench.receive(peer(99), request(peer(99)))
    assert sent(effects, wire.JoinRefused) == [(peer(99), wire.JoinRefused(1, "busy"))]


def test_an_equal_or_lower_incarnation_is_refused() -> None:
    bench = Bench(1).adopt(peer(5, 3))
    for incarnation in (2, 3):
        effects = bench.receive(peer(5, 3), wire.JoinRequest(peer(5, incarnation), 1))
        assert sent(effects, wire.JoinRefused)[0][1].reason == "incarnation"
    effects = bench.receive(peer(5, 4), request(peer(5, 4)))
    assert of(effects, PeerFailed) == [PeerFailed(peer(5, 3), "restarted")]
    assert peer(5).node in admitted(bench.wait(3_000)), "when the gap over its old life is closed"


def test_a_rejoin_outranks_what_is_known_of_it() -> None:
    bench = Bench(1).adopt(peer(5), peer(9))
    effects = bench.receive(peer(5), request(peer(5), refutations=1))
    assert sent(effects, wire.JoinRefused) == []
    ((_, question),) = [pair for pair in sent(effects, ring.RenewLease) if pair[0] == peer(5)]
    effects = bench.receive(peer(5), ring.NotInRing(question.at))
    assert [to for to, _ in sent(effects, ring.ProposeNeighbour)] == [peer(9)], "its old place is closed at once"
    assert of(effects, PeerLeft) == [], "to the node above it is neither dead nor gone"


def test_the_route_of_a_second_join_attempt_is_examined() -> None:
    """Tables hold the dead until they are used, and a join is not acknowledged from hop to hop."""
    bench = Bench(0).adopt(*(peer(number) for number in range(1, 200)))
    bench.wait(600)
    for attempt, looked_at in ((1, 0), (2, 1)):
        effects = bench.receive(peer(1), wire.JoinRequest(Peer(NodeId((150 << 120) + 1), 1), attempt))
        ((hop, _),) = sent(effects, wire.JoinRequest)
        assert len([to for to, _ in sent(effects, wire.PeerProbe) if to == hop]) == looked_at


def test_a_successor_that_answers_again_is_asked_first() -> None:
    """It was held for dead and still holds this node for its predecessor: on a link that comes and goes it may be the only one."""
    bench = Bench(1).adopt(peer(5), peer(9))
    agreed = bench.machine._view.agreed
    agreed.successor.is_dead = agreed.has_changed = True
    effects = bench.receive(peer(9), wire.RouteAck(1))
    assert [to for to, _ in sent(effects, ring.ProposeNeighbour)] == [peer(9)]
    effects = bench.receive(peer(5), ring.RenewLease(True, 7, 0, (0, NodeId(0))))
    assert [to for to, _ in sent(effects, ring.ProposeNeighbour)] == [peer(5)]


def test_a_refused_joiner_reports_the_reason() -> None:
    bench = Bench(5)
    bench.give(JoinRing((peer(2),)))
    bench.receive(peer(2), wire.ProbeAck(1, 0, joined=True))
    (failed,) = of(bench.receive(peer(2), wire.JoinRefused(1, "incarnation", 7)), JoinFailed)
    assert "incarnation 7" in failed.reason


def test_no_node_joins_through_a_non_member() -> None:
    bench = Bench(1)
    assert bench.receive(peer(5), wire.JoinRequest(peer(5), 1)) == []
    assert ("outside", 1) in bench.machine.statistics().dropped
    forwarded = wire.JoinRequest(peer(5), 1, (peer(3),), refutations=2)
    effects = bench.receive(peer(3), forwarded)
    assert sent(effects, ring.JoinBounced) == [
        (peer(3), ring.JoinBounced(ring.QueuedJoin(peer(5), 1, 2), (peer(3),), False))
    ]


def test_the_smallest_id_bootstraps_when_no_node_is_a_member() -> None:
    low, high = Bench(1), Bench(9)
    for bench, other in ((low, peer(9)), (high, peer(1))):
        bench.give(JoinRing((other,)))
        for _ in range(5):
            bench.receive(other, wire.ProbeAck(1, 0, joined=False))
            for to, question in sent(bench.wait(500), ring.RequestRingCreation):
                bench.receive(to, ring.RingCreationReply(question.number, ok=True))
    assert low.machine.joined
    assert not high.machine.joined


def looking(
    number: int, *answering: Peer, rounds: int = 3
) -> tuple[Bench, list[tuple[Peer, ring.RequestRingCreation]]]:
    """A node that looks for a ring, and the node that it asked for consent after some rounds in which others answered."""
    bench = Bench(number)
    bench.give(JoinRing(answering))
    asked: list[tuple[Peer, ring.RequestRingCreation]] = []
    for _ in range(rounds):
        for other in answering:
            bench.receive(other, wire.ProbeAck(1, 0, joined=False))
        asked.extend(sent(bench.wait(501), ring.RequestRingCreation))
    return bench, asked


def test_a_bootstrapping_node_has_the_consent_of_all_that_answered() -> None:
    bench, asked = looking(1, peer(8), peer(9))
    assert [to for to, _ in asked] == [peer(8), peer(9)]
    bench.receive(peer(8), ring.RingCreationReply(asked[0][1].number, ok=True))
    assert not bench.machine.joined
    bench.receive(peer(9), ring.RingCreationReply(asked[1][1].number, ok=True))
    assert bench.machine.joined


def test_one_refusal_prevents_a_bootstrap() -> None:
    bench, asked = looking(1, peer(8), peer(9))
    bench.receive(peer(8), ring.RingCreationReply(asked[0][1].number, ok=False))
    bench.receive(peer(9), ring.RingCreationReply(asked[1][1].number, ok=True))
    assert not bench.machine.joined


def test_a_node_that_knows_a_smaller_id_does_not_bootstrap() -> None:
    bench = Bench(5)
    bench.give(JoinRing((peer(9),)))
    for _ in range(6):
        bench.receive(peer(9), wire.ProbeAck(1, 0, False, None, -1, peer(2), 300))
        assert sent(bench.wait(500), ring.RequestRingCreation) == []
    assert any(to == peer(2) for to, _ in sent(bench.effects, wire.PeerProbe)), "it is asked, too"
    asked = []
    for _ in range(16):
        bench.receive(peer(9), wire.ProbeAck(1, 0, joined=False))
        asked.extend(sent(bench.wait(500), ring.RequestRingCreation))
    assert asked, "the smaller one has not been heard of for long"


def test_a_third_node_promises_to_one_at_a_time() -> None:
    """Two that know each other only through it do not both found."""
    bench, _ = looking(9, peer(20))
    first = sent(bench.receive(peer(7), ring.RequestRingCreation(1)), ring.RingCreationReply)
    assert first == [(peer(7), ring.RingCreationReply(1, ok=True))]
    assert not sent(bench.receive(peer(5), ring.RequestRingCreation(2)), ring.RingCreationReply)[0][1].ok
    bench.wait(2_100)
    assert sent(bench.receive(peer(5), ring.RequestRingCreation(3)), ring.RingCreationReply)[0][1].ok, (
        "the promise is over"
    )
    bench.wait(2_100)
    assert not sent(bench.receive(peer(7), ring.RequestRingCreation(4)), ring.RingCreationReply)[0][1].ok, (
        "it knows of a smaller one"
    )
    assert not sent(bench.receive(peer(11), ring.RequestRingCreation(5)), ring.RingCreationReply)[0][1].ok, (
        "it is smaller itself"
    )
    found = Bench(9).found()
    assert sent(found.receive(peer(5), ring.RequestRingCreation(1)), ring.RingCreationReply) == [
        (peer(5), ring.RingCreationReply(1, False, 0))
    ]


def test_a_node_that_left_others_in_a_ring_remembers_it() -> None:
    bench = Bench(1).adopt(peer(2))
    bench.give(LeaveRing())
    bench.wait(60_000)
    ((_, answer),) = sent(bench.receive(peer(9), wire.PeerProbe(1, 0, joined=False)), wire.ProbeAck)
    assert answer.ring_age_ms == 0


# ---- a node that comes back from an old image of its disk


def test_a_used_incarnation_number_is_refused_during_the_ring_search() -> None:
    bench = Bench(5)
    bench.give(JoinRing((peer(2),)))
    assert of(bench.receive(peer(2), wire.Accused(0, 4)), JoinFailed) == [], "said of an earlier life"
    (failed,) = of(bench.receive(peer(2), wire.Accused(0, 1)), JoinFailed)
    assert "incarnation 1" in failed.reason


def test_an_incarnation_admitted_by_mistake_leaves() -> None:
    """The admitting nodes knew nothing of its later incarnation, or of its leave; a node that knows says so."""
    for refusal in (wire.JoinRefused(0, "incarnation", 4), wire.JoinRefused(0, "left", 3)):
        bench = Bench(1, incarnation=3).adopt(peer(2), peer(9))
        (failed,) = of(bench.receive(peer(9), refusal), JoinFailed)
        assert "state directory was restored from a copy" in failed.reason
        assert not bench.machine.joined
    bench = Bench(1, incarnation=5).adopt(peer(2), peer(9))
    for refusal in (
        wire.JoinRefused(0, "incarnation", 4),
        wire.JoinRefused(0, "incarnation", 5),
        wire.JoinRefused(0, "left", 4),
    ):
        bench.receive(peer(9), refusal)
    assert bench.machine.joined, "said of earlier lives"


def test_a_member_leaves() -> None:
    bench = Bench(1).adopt(peer(2))
    effects = bench.give(LeaveRing())
    assert of(effects, LeaveCompleted)
    assert sent(effects, wire.Departing) == [(peer(2), wire.Departing())]
    assert not bench.machine.joined
    ((_, answer),) = sent(bench.receive(peer(2), wire.PeerProbe(1, 0, joined=True)), wire.ProbeAck)
    assert not answer.joined
    assert of(Bench(1).give(LeaveRing()), LeaveCompleted), "also when it was never in"


def test_a_leaving_node_that_must_rejoin_is_out_at_the_deadline() -> None:
    bench = Bench(1).adopt(peer(2), peer(3))
    bench.receive(peer(3), ring.TransferRange((peer(3).node, 1, 1), peer(9)))
    assert of(bench.give(LeaveRing()), LeaveCompleted) == [], "a joiner comes in beside it"
    effects = bench.receive(peer(2), ring.NotNeighbour(to_predecessor=False, at=0))
    assert of(effects, Rejoining)
    assert of(bench.wait(1_950), LeaveCompleted) == []
    assert of(bench.wait(100), LeaveCompleted) == [LeaveCompleted()]
    assert sent(bench.wait(10_000), wire.PeerProbe) == [], "it looks for the ring no longer"


def closing_towards_three() -> tuple[Bench, ring.ProposeNeighbour]:
    """A member whose successor is dead; it asks the next leaf."""
    bench = Bench(1).adopt(peer(2), peer(3), peer(4), peer(9))
    bench.wait(1_000)
    ((to, close),) = sent(bench.receive(peer(2), ring.NotInRing(bench.now)), ring.ProposeNeighbour)
    assert to == peer(3)
    return bench, close


def test_a_node_that_answers_an_early_range_owner_is_not_skipped() -> None:
    bench, close = closing_towards_three()
    agreed = bench.machine._view.agreed
    agreed.predecessor.lease = agreed.successor.lease = bench.now
    for _ in range(10):
        effects = bench.wait(250)
        bench.receive(peer(3), ring.NeighbourAccepted(close.ticket, bench.now, bench.now, 0))
        assert {to for to, _ in sent(effects, ring.ProposeNeighbour)} <= {peer(3)}


def test_a_skipped_node_that_holds_the_owner_for_its_neighbour_is_asked_again() -> None:
    bench, _ = closing_towards_three()
    asked = [to for to, _ in sent(bench.wait(2_000), ring.ProposeNeighbour)]
    assert asked[-1] == peer(4), "the first was silent"
    effects = bench.receive(
        peer(3), ring.RenewLease(to_predecessor=True, at=bench.now, refutations=0, name=(0, peer(3).node))
    )
    assert sent(effects, ring.NotNeighbour) == []
    assert [to for to, _ in sent(effects, ring.ProposeNeighbour)] == [peer(3)]


def test_a_join_from_behind_the_gap_waits_until_it_is_closed() -> None:
    bench, _ = closing_towards_three()
    path = (peer(3), peer(4))
    effects = bench.receive(peer(3), wire.JoinRequest(peer(2, 2), 2, path, walking=True))
    assert sent(effects, ring.JoinQueued) == [(peer(2, 2), ring.JoinQueued(2))]
    join = wire.JoinRequest(Peer(NodeId(5 << 119), 1), 1, path, walking=True)
    assert [to for to, _ in sent(bench.receive(peer(3), join), ring.JoinQueued)] == [join.joiner]


def test_a_join_forwarded_past_a_node_goes_on_to_that_node() -> None:
    """Not by the shorter way round the ring, which leads back to the node that could not reach it (crashes, seed 821007)."""
    bench = Bench(0x65).adopt(peer(0x1B), peer(0x2E), peer(0x44), peer(0xF7))
    passed = wire.JoinRequest(peer(0x16), 1, (peer(0x1B),), walking=True)
    assert [to for to, _ in sent(bench.receive(peer(0x1B), passed), wire.JoinRequest)] == [peer(0xF7)]


def test_a_join_skips_no_node_twice() -> None:
    """It went round the ring when the member just before the joiner had died: a storm, where messages are doubled."""
    bench = Bench(1).adopt(peer(2), peer(3), peer(4), peer(9))
    joiner = Peer(NodeId(5 << 119), 1)
    first = wire.JoinRequest(joiner, 1, (peer(9),), walking=True)
    assert [to for to, _ in sent(bench.receive(peer(9), first), wire.JoinRequest)] == [peer(2)]
    again = wire.JoinRequest(joiner, 1, (peer(9), peer(1), peer(2), peer(9)), walking=True)
    assert bench.receive(peer(9), again) == []
    routed = wire.JoinRequest(Peer(NodeId(3 << 119), 1), 1, (peer(1), peer(9)))
    assert sent(bench.receive(peer(9), routed), ring.InviteJoiner), (
        "but a node on its route before the walk may be on it again"
    )


def test_every_second_late_join_attempt_avoids_the_best_hop() -> None:
    """A link on it may be broken, and a join is not acknowledged from hop to hop."""
    bench = Bench(0).adopt(*(peer(number) for number in range(1, 200)))
    hops = []
    for attempt in (1, 2, 3, 4, 5):
        join = wire.JoinRequest(Peer(NodeId((150 << 120) + 1), 1), attempt)
        ((hop, _),) = sent(bench.receive(peer(1), join), wire.JoinRequest)
        hops.append(hop)
    assert hops[0] == hops[1] == hops[3]
    assert hops[2] == hops[4] != hops[0]


def test_a_node_that_outranks_rumours_of_its_death_does_not_rejoin_for_them() -> None:
    """Its join is passed on by nodes that hold it for dead; each of them says so."""
    bench = Bench(5, incarnation=2)
    bench.give(JoinRing((peer(2),)))
    bench.receive(peer(2), wire.Accused(1, 1))
    assert sent(bench.wait(250), wire.PeerProbe), "at once with one refutation more"
    bench.receive(peer(2), wire.Accused(1, 1))
    assert sent(bench.wait(250), wire.PeerProbe) == []
