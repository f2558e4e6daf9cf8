"""I6: no key has two owners, through joins, crashes, leaves, pauses, restarts, drift and cuts; and it does not take long."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import LeaveRing
from agiledart_simulation.checkers.ownership_checker import ring_violations
from agiledart_simulation.runs.campaign import play
from agiledart_simulation.runs.scenario import MOMENTS, draw
from agiledart_simulation.world.overlay_ring import simulated_ids
from tests.simulation.bed import Bed


def grown(count: int, seed: int = 1, **options: object) -> tuple[Bed, list[NodeId]]:
    """A quiet ring."""
    bed = Bed(seed, **options)  # type: ignore[arg-type]
    ids = simulated_ids(seed, count)
    for index, node in enumerate(ids):
        bed.start(node, ids[: min(index, 2)])
        bed.world.run_for(SECOND // 2)
    assert bed.settle(20 * SECOND) is not None, bed.wrong()
    return bed, ids


# ---- flash crowds


@pytest.mark.parametrize(("step_ms", "loss"), [(0, 0.0), (0, 0.01), (5, 0.0), (20, 0.01)])
def test_sixty_joins(step_ms: int, loss: float) -> None:
    report = play(draw(1, 60, "crowds", {"step_ms": step_ms, "loss": loss}))
    assert report.violations == ()
    assert report.quiet_ns <= 8 * SECOND
    assert report.unowned_ms <= 1_000


@pytest.mark.soak
@pytest.mark.parametrize("loss", [0.0, 0.01])
@pytest.mark.parametrize("step_ms", [0, 20, 5])
def test_a_thousand_joins(step_ms: int, loss: float) -> None:
    """The specification's flash crowd: right within 15 virtual seconds, and never two owners."""
    report = play(draw(1, 1_000, "crowds", {"step_ms": step_ms, "loss": loss}))
    assert report.violations == ()
    assert report.quiet_ns <= 15 * SECOND


# ---- one fault at every moment of a join


def swept(seeds: Iterable[int]) -> None:
    for seed in seeds:
        scenario = draw(seed, name="moments")
        report = play(scenario)
        assert report.violations == (), f"replay: {scenario.command}"
        if "ring-lost" in dict(report.reached):
            assert scenario.nodes == 1, "a ring of one that dies before its first joiner is in is gone, no other"
        else:
            assert report.unowned_ms <= 6_100, f"replay: {scenario.command}"


def test_seeds_enumerate_all_moments_of_a_join() -> None:
    drawn = [draw(seed, name="moments") for seed in range(1, 3_361)]
    different = {(each.kinds, each.nodes, each.steps, each.step_ms) for each in drawn}
    assert len(different) == 3_360 == len(MOMENTS) * 4 * 2 * 35
    assert {each.step_ms for each in drawn} == set(range(0, 700, 20))


@pytest.mark.parametrize("kind", range(len(MOMENTS)))
def test_one_fault_in_the_middle_of_a_join(kind: int) -> None:
    """Every size of a ring and every number of joiners, at four moments of each."""
    whole = len(MOMENTS) * 4 * 2
    swept(kind + len(MOMENTS) * place + whole * moment for place in range(8) for moment in (2, 10, 17, 25))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1, 3_361, 168))
def test_one_fault_at_every_moment_of_a_join(first: int) -> None:
    swept(range(first, first + 168))


# ---- storms


def weathered(seed: int) -> None:
    scenario = draw(seed, 40, "storms")
    report = play(scenario)
    assert report.violations == (), f"replay: {scenario.command}"


@pytest.mark.parametrize("first", [1, 4, 7])
def test_storms(first: int) -> None:
    for seed in range(first, first + 3):
        weathered(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 160, 20))
def test_more_storms(first: int) -> None:
    for seed in range(first, first + 20):
        weathered(seed)


# ---- clocks


def drifting(rate_ppm: int, margin_permille: int) -> Bed:
    """Joins whose range owner's clock is too fast and whose joiners' clocks are too slow, and confirmations that never come."""
    config = replace(OverlayConfig.lan(), lease_margin_permille=margin_permille)
    bed = Bed(5, config=config)
    ids = simulated_ids(5, 4)
    bed.start(ids[0], (), 1_000 * rate_ppm)
    bed.world.run_for(SECOND)
    for node in ids[1:]:
        bed.start(node, ids[:1], -1_000 * rate_ppm)
        for _ in range(40):
            if bed.world.nodes[node].machine.claim(bed.world.nodes[node].local(bed.world.now)) is not None:
                break
            bed.world.run_for(10 * MILLISECOND)
        bed.world.network.clog(node, ids[0])
        bed.world.run_for(4 * SECOND)
        bed.world.network.heal()
        bed.world.run_for(4 * SECOND)
    return bed


@pytest.mark.parametrize("rate_ppm", [0, 500, 4_900])
def test_clocks_that_differ_within_the_margin_are_safe(rate_ppm: int) -> None:
    bed = drifting(rate_ppm, 10)
    assert bed.owners.overlaps == 0
    assert bed.settle(30 * SECOND) is not None, bed.wrong()


def test_clocks_that_differ_by_more_than_the_margin_are_found() -> None:
    """The margin is needed: with clocks 20 % apart a lease outlives what was promised, and the checker sees it."""
    assert drifting(100_000, 10).owners.overlaps > 0


def test_a_wider_margin_tolerates_more() -> None:
    assert drifting(80_000, 200).owners.overlaps == 0


# ---- incarnations


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize("down_ms", [0, 300, 1_500, 6_000])
def test_a_restarted_id_replaces_its_old_incarnation(down_ms: int, silent: bool) -> None:
    bed, ids = grown(5)
    bed.world.crash(ids[2], silent=silent)
    bed.world.run_for(down_ms * MILLISECOND)
    bed.start(ids[2], ids[:2])
    settled = bed.settle(15 * SECOND)
    assert bed.owners.overlaps == 0, bed.owners.violations
    assert settled is not None, bed.wrong()
    assert bed.world.nodes[ids[2]].peer.incarnation == 2
    assert settled <= 5


@pytest.mark.parametrize("down_ms", [0, 4_000])
def test_an_id_from_an_old_disk_image_is_refused(down_ms: int) -> None:
    """It runs under a number that it had before, whether or not the others have noticed its death; its next number is let in."""
    bed, ids = grown(4)
    old = bed.world.nodes[ids[2]].peer
    bed.world.crash(ids[2])
    bed.world.run_for(down_ms * MILLISECOND)
    bed.ring.start(ids[2], ids[:1], peer=old, forgets=True)
    bed.world.run_for(4 * SECOND)
    ((peer, reason),) = bed.ring.join_failures
    assert peer == old
    assert "incarnation 1" in reason
    bed.world.crash(ids[2])
    bed.start(ids[2], ids[:1])
    assert bed.settle(15 * SECOND) is not None, bed.wrong()
    assert bed.owners.overlaps == 0


def test_a_departed_id_is_refused_under_this_number_without_its_range_owner() -> None:
    """Seed and neighbours came after the leave message; one far away remembers it. Half a member is none."""
    bed, ids = grown(5)
    ids = sorted(ids)
    old = bed.world.nodes[ids[2]].peer
    bed.world.inject(ids[2], LeaveRing())
    bed.world.run_for(3 * SECOND)
    bed.bury_the_left()
    for node in (ids[0], ids[1], ids[3]):
        bed.world.crash(node)
        bed.start(node, [other for other in ids if other not in (node, ids[2])])
        bed.world.run_for(6 * SECOND)
    bed.ring.start(ids[2], [ids[1]], peer=old, forgets=True)
    bed.world.run_for(6 * SECOND)
    assert [peer for peer, _ in bed.ring.join_failures] == [old]
    bed.world.crash(ids[2])
    assert bed.settle(15 * SECOND) is not None, bed.wrong()
    assert bed.owners.overlaps == 0


@pytest.mark.parametrize("quarter", [1, 3])
@pytest.mark.parametrize("seconds", [1, 15])
@pytest.mark.parametrize("deaf", ["guardian", "successor", "both"])
def test_a_joiner_enters_between_two_nodes_with_a_one_way_link(deaf: str, seconds: int, quarter: int) -> None:
    """The range owner can agree on nothing with its successor: it goes, and comes back when those that waited are in."""
    bed, ids = grown(6)
    left, right = sorted(ids)[2:4]
    if deaf != "guardian":
        bed.world.network.clog(left, right)
    if deaf != "successor":
        bed.world.network.clog(right, left)
    bed.world.run_for(seconds * SECOND)
    new = NodeId(left + (right - left) // 4 * quarter)
    bed.start(new, ids[:1])

    def is_right() -> bool:
        return bed.ring.machine(new).joined and ring_violations(bed.ring.machines, bed.world.now) == []

    assert bed.world.run_until(is_right, 30 * SECOND)
    assert bed.owners.overlaps == 0


# ---- cuts


@pytest.mark.parametrize(("count", "cut"), [(2, 1), (6, 1), (6, 3), (12, 6), (24, 9)])
def test_two_rings_merge_again(count: int, cut: int) -> None:
    """Both sides go on by themselves; afterwards the smaller one joins the larger, or one of two equals the other."""
    bed, ids = grown(count, seed=3)
    bed.owners.is_whole = False
    bed.world.network.partition(tuple(ids[:cut]))
    bed.world.run_for(25 * SECOND)
    for side in (ids[:cut], ids[cut:]):
        machines = [bed.ring.machine(node) for node in side]
        assert ring_violations(machines, bed.world.now) == [], "each side is a ring of its own"
    bed.world.network.heal()
    settled = bed.settle(60 * SECOND)
    assert settled is not None, bed.wrong()
    assert settled <= 45
    rejoined = [node for node in ids if bed.ring.machine(node).statistics().rejoins]
    if cut * 4 <= count - cut:
        assert set(rejoined) <= set(ids[:cut]), "the many do not go to the few"
    bed.owners.is_whole = True
    bed.world.run_for(10 * SECOND)
    assert bed.owners.overlaps == 0
    assert bed.is_right


def test_a_ring_beside_an_unresponsive_one_looks_to_its_other_side() -> None:
    """Three rings after a cut: the node alone in the middle one has a neighbour on each side, one of which can complete
    nothing.
    """
    bed, ids = grown(6)
    ring = sorted(ids)
    bed.world.network.partition((ring[3],), (ring[4],))
    bed.owners.is_whole = False
    bed.world.run_for(10 * SECOND)
    bed.world.network.heal()
    bed.world.network.clog(ring[4], ring[5])
    middle = bed.ring.machine(ring[3])
    assert middle.agreed_neighbours == (middle.me, middle.me)
    before = bed.world.nodes[ring[2]].peer
    assert bed.world.run_until(lambda: middle.joined and middle.agreed_neighbours[0] == before, 40 * SECOND)


def test_a_node_that_joined_in_a_partition_finds_the_other_side_by_itself() -> None:
    """Earlier members report their lost nodes to their joiners."""
    bed, ids = grown(6)
    bed.world.network.partition(tuple(ids[:2]))
    bed.owners.is_whole = False
    bed.world.run_for(10 * SECOND)
    first, second = simulated_ids(99, 2)
    bed.start(first, ids[:2])
    bed.world.network.partition((*ids[:2], first, second))
    bed.world.run_for(2 * SECOND)
    for node in ids[:2]:
        bed.world.crash(node)
    bed.world.run_for(5 * SECOND)
    bed.start(second, [first])
    bed.world.run_for(2 * SECOND)
    bed.world.crash(first)
    bed.world.network.heal()
    assert bed.settle(40 * SECOND) is not None, bed.wrong()
    assert bed.ring.machine(second).joined


def test_two_founders_merge_into_one_ring() -> None:
    """Two rings that never had to do with each other, until one learns of the other through a seed."""
    bed = Bed(4)
    ids = simulated_ids(4, 8)
    for index, node in enumerate(ids):
        bed.start(node, ids[index % 2 : index % 2 + 1] if index > 1 else ())
        bed.world.run_for(SECOND)
    assert not bed.is_right
    bed.owners.is_whole = False
    late = NodeId(ids[0] ^ 1)
    bed.start(late, ids[:2])
    bed.world.nodes[late].machine._view.seeds = tuple(bed.world.nodes[node].peer for node in ids[:2])
    assert bed.settle(60 * SECOND) is not None, bed.wrong()
