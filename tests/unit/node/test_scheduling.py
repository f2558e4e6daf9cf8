"""Parts of scheduling on their own: advertisements, votes, walks, scheduler slots."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from agiledart_kernel.codec import encode
from agiledart_kernel.counts import MAX_COUNT
from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.node_id import NodeId, key_of_name, ring_distance
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.protocol import NODE_CODEC
from agiledart_node.scheduling.advertisements import MAX_ADVERTISEMENTS, Advertisements, Freshness
from agiledart_node.scheduling.claims import CLAIM_CODEC, Claim, Claims, scheduler_slot_key
from agiledart_node.scheduling.election import Election, winner_of
from agiledart_node.scheduling.messages import Advertisement, Candidate, FindScheduler, SchedulerSlot
from agiledart_node.scheduling.planning_slots import PlanningSlots
from agiledart_node.scheduling.scheduler_lookup import SchedulerLookup, estimated_nodes, walk_length
from agiledart_node.scheduling.submission_dispatcher import parse_forwarded_response
from agiledart_node.wire.submission_responses import SubmitResponse
from agiledart_overlay.tables.leaf_set import LeafSet

LIFE = Duration(10 * SECOND)


def peer(number: int, incarnation: int = 1) -> Peer:
    return Peer(NodeId(number << 100), incarnation, f"n{number}")


def said(number: int, version: int = 1, applications: int = 0, index: int = 0, **fields: object) -> Advertisement:
    incarnation = fields.pop("incarnation", 1)
    assert isinstance(incarnation, int)
    resigned = bool(fields.pop("resigned", False))
    return Advertisement(peer(number, incarnation), SchedulerSlot("z", index, 1), version, applications, 50, resigned)


def at(seconds: float) -> Instant:
    return Instant(int(seconds * SECOND))


def test_the_newest_version_of_an_incarnation_wins() -> None:
    known = Advertisements(LIFE)
    assert known.take(said(1, 2), at(0)) is Freshness.NEWS
    assert known.take(said(1, 1), at(0)) is Freshness.OLD
    assert known.take(said(1, 3), at(0)) is Freshness.NEWER
    assert known.take(said(1, 1, incarnation=2), at(0)) is Freshness.NEWS


def test_changes_of_free_slots_and_resignations_are_advertised() -> None:
    known = Advertisements(LIFE)
    worth = [known.take(said(1, version, count), at(0)) for version, count in ((1, 49), (2, 50), (3, 50), (4, 49))]
    assert worth == [Freshness.NEWS, Freshness.NEWS, Freshness.NEWER, Freshness.NEWS]
    assert known.take(said(1, 5, 0, resigned=True), at(0)) is Freshness.NEWS
    assert known.of("z") == []


def test_a_dropped_advertisement_does_not_return_through_a_neighbour() -> None:
    known = Advertisements(LIFE)
    known.take(said(1, 7), at(0))
    known.forget_old(at(10), NodeId(0))
    assert len(known) == 1
    known.forget_old(at(10.1), NodeId(0))
    assert len(known) == 0
    assert known.take(said(1, 7), at(11)) is Freshness.OLD
    assert known.take(said(1, 8), at(11)) is Freshness.NEWS


def test_a_schedulers_own_advertisement_stays_while_it_holds_the_slot() -> None:
    known = Advertisements(LIFE)
    known.take(said(1), at(0))
    known.forget_old(at(100), peer(1).node)
    assert len(known) == 1
    known.take(said(1, 2, resigned=True), at(100))
    known.forget_old(at(111), peer(1).node)
    assert len(known) == 0


def test_a_later_incarnation_is_not_dropped_with_the_earlier_one() -> None:
    known = Advertisements(LIFE)
    known.take(said(1, incarnation=2), at(0))
    known.drop(peer(1, 1), at(1))
    assert known.get(peer(1).node) is not None


def test_low_scheduler_slots_fill_first_and_refused_ones_are_skipped() -> None:
    known = Advertisements(LIFE)
    for number, index, applications in ((1, 2, 0), (2, 0, 50), (3, 1, 10)):
        known.take(said(number, applications=applications, index=index), at(0))
    best = known.best("z", ())
    assert best is not None
    assert best.scheduler_slot.index == 1
    other = known.best("z", (peer(3).node,))
    assert other is not None
    assert other.scheduler_slot.index == 2
    assert known.best("elsewhere", ()) is None


def test_the_cache_is_bounded() -> None:
    known = Advertisements(LIFE)
    for number in range(1, MAX_ADVERTISEMENTS + 50):
        known.take(said(number), at(0))
    assert len(known) == MAX_ADVERTISEMENTS


def test_the_vote_ranks_by_capacity_load_and_zone_distance_without_duplicates() -> None:
    def vote(*candidates: tuple[int, int, int, bool]) -> Peer | None:
        table = {
            peer(n).node: (peer(n), Candidate(0, capacity, load, taken)) for n, capacity, load, taken in candidates
        }
        return winner_of(table, "z")

    assert vote((1, 64, 0, False), (2, 128, 9, False)) == peer(2)
    assert vote((1, 64, 3, False), (2, 64, 2, False)) == peer(2)
    nearest = min((1, 2, 3), key=lambda n: ring_distance(peer(n).node, key_of_name("zone", "z")))
    assert vote((1, 64, 0, False), (2, 64, 0, False), (3, 64, 0, False)) == peer(nearest)
    assert vote((1, 64, 0, True), (2, 8, 60, False)) == peer(2)
    assert vote((1, 64, 0, True)) is None


@pytest.mark.parametrize(
    ("nodes", "hops"), [(1, 1), (2, 1), (16, 1), (17, 2), (256, 2), (257, 3), (1000, 3), (10_000, 4)]
)
def test_a_walk_has_log16_n_hops(nodes: int, hops: int) -> None:
    assert walk_length(nodes, 4) == hops


def test_the_number_of_nodes_is_estimated_from_leaf_set_density() -> None:
    random = RandomStream(1, "ids")
    ids = [NodeId(random.bits(128)) for _ in range(10_000)]
    estimates = []
    for owner in ids[:8]:
        leaves = LeafSet(owner, 24, 128)
        for node in ids:
            leaves.add(Peer(node))
        estimates.append(estimated_nodes(leaves, owner, 128))
    assert 6_000 < sum(estimates) / len(estimates) < 16_000
    assert all(walk_length(estimate, 4) == 4 for estimate in estimates)
    small = LeafSet(ids[0], 24, 128)
    for node in ids[1:9]:
        small.add(Peer(node))
    assert estimated_nodes(small, ids[0], 128) == 9


def test_scheduler_slots_have_keys_of_their_own() -> None:
    keys = {scheduler_slot_key(domain, index) for domain in ("", "z", "z1") for index in range(20)}
    assert len(keys) == 60


def test_slots_are_granted_in_order_and_a_long_wait_is_reported() -> None:
    requests = PendingRequests(RandomStream(1, "talks"), Duration(SECOND), 100)
    turns = PlanningSlots(requests, 1)
    seen: list[tuple[str, bool]] = []

    async def come(name: str, patience: float) -> None:
        seen.append((name, await turns.acquire(Duration(int(patience * SECOND)))))

    for name, patience in (("a", 9), ("b", 9), ("c", 1), ("d", 9)):
        requests.begin(come(name, patience))
    assert (seen, turns.waiting) == ([("a", True)], 3)
    requests.now = at(2)
    for effect in list(requests.effects):
        requests.timer(getattr(effect, "name", ("", "", 0)))
    assert seen[1:] == [("c", False)]
    turns.release_slot()
    turns.release_slot()
    assert seen[2:] == [("b", True), ("d", True)]
    turns.release_slot()
    requests.begin(come("e", 9))
    assert seen[-1] == ("e", True)


def test_a_walk_with_the_maximum_hop_count_is_forwarded_in_a_readable_message() -> None:
    sent: list[Any] = []
    context = SimpleNamespace(me=peer(1), send=lambda to, message: sent.append(message))
    known = SimpleNamespace(best=lambda domain, refused: None)
    gossip = SimpleNamespace(peers=lambda domain: [peer(2)])
    scheduler_lookup = SchedulerLookup(
        cast(Any, context), cast(Any, known), cast(Any, gossip), cast(Any, None), RandomStream(1, "walk")
    )
    scheduler_lookup.on_find(peer(3), FindScheduler(1, peer(3), "z", ttl=3, visited=(), refused=(), hops=MAX_COUNT))
    (query,) = sent
    assert NODE_CODEC.decode(encode(query)) == query


def test_a_node_that_refused_is_not_elected() -> None:
    """It would be given slot after slot, and refuse each."""

    async def ask_all(sample: list[Peer], *_: object) -> list[tuple[Peer, Candidate]]:
        return [(one, Candidate(0, 100 * int(one == peer(2)), 0, False)) for one in sample]

    async def read(domain: str, index: int) -> tuple[int, None]:
        return 0, None

    async def claim(domain: str, index: int, winner: Peer, seen: object) -> Claim:
        return Claim(SchedulerSlot(domain, index, 1), winner)

    config = SimpleNamespace(report_timeout_ns=1, election_sample=8)
    requests = SimpleNamespace(ask_all=ask_all, is_gone=lambda _: False)
    context = cast(Any, SimpleNamespace(me=peer(1), requests=requests, config=config, observe=lambda _: None))
    gossip = cast(Any, SimpleNamespace(peers=lambda _: [peer(2), peer(3)]))
    claims = cast(Any, SimpleNamespace(read=read, claim=claim))
    election = Election(context, Advertisements(LIFE), gossip, claims, RandomStream(1, "elect"))

    def elected(*refused: int) -> Peer | None:
        found = asyncio.run(election.find_holder("z", {peer(n).node: False for n in refused}))
        return found[0] if found is not None else None

    assert elected() == peer(2)
    assert elected(2) == peer(3)
    assert elected(1, 2, 3) is None


def test_a_scheduler_slot_of_the_last_term_can_still_be_claimed() -> None:
    stored: list[bytes] = []

    async def store(key: NodeId, version: int, value: bytes) -> Any:
        stored.append(value)
        return SimpleNamespace(ok=True)

    claims = Claims(cast(Any, None), cast(Any, SimpleNamespace(store=store)))
    before = Claim(SchedulerSlot("z", 0, MAX_COUNT), None)
    claim = asyncio.run(claims.claim("z", 0, peer(1), (7, before)))
    assert [CLAIM_CODEC.decode(value) for value in stored] == [claim]


def test_a_newer_schedulers_answer_is_forwarded_and_a_malformed_one_is_refused() -> None:
    body = SubmitResponse("rooms", 1, "running", {"read": ["a1"]}, ["a1"], "a1", [["a1"]], [], "along_path", 0.5)
    told = {**msgspec.structs.asdict(body), "of_the_future": 7}
    passed = parse_forwarded_response(msgspec.msgpack.encode(told), Peer(NodeId(1), 1, "a2"), "rooms")
    assert msgspec.to_builtins(passed) == msgspec.to_builtins(body)
    for nonsense in (b"", b"\xc1", msgspec.msgpack.encode({"name": 7}), msgspec.msgpack.encode([1])):
        with pytest.raises(CommandRefused, match="a2 deployed rooms"):
            parse_forwarded_response(nonsense, Peer(NodeId(1), 1, "a2"), "rooms")
