"""Each planted mistake of the admission gives some key two owners, in the place where it hides; the right code never does."""

from collections.abc import Callable

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_simulation.runs.campaign import play
from agiledart_simulation.runs.scenario import draw
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import simulated_ids
from tests.simulation.admission_mutants import MUTANTS
from tests.simulation.bed import Bed


def ring_of(bed: Bed, count: int) -> list[NodeId]:
    ids = sorted(simulated_ids(bed.world.seed, count + 1))
    for index, node in enumerate(ids[:count]):
        bed.start(node, ids[: min(index, 2)])
        bed.world.run_for(SECOND // 2)
    bed.settle(20 * SECOND)
    return ids


def until(bed: Bed, condition: Callable[[], bool]) -> None:
    assert bed.world.run_until(condition, 5 * SECOND, 5 * MILLISECOND)


def machine(bed: Bed, node: NodeId) -> OverlayMachine:
    return bed.ring.machine(node)


def claims(bed: Bed, node: NodeId) -> bool:
    return machine(bed, node).claim(bed.world.nodes[node].local(bed.world.now)) is not None


def plain_join() -> Bed:
    bed = Bed(1, is_judged=False)
    ids = ring_of(bed, 3)
    bed.start(ids[3], ids[:2])
    bed.settle(10 * SECOND)
    return bed


def admitting(bed: Bed, node: NodeId) -> bool:
    """Whether a node has stopped for the keys of a joiner."""
    agreed = machine(bed, node)._view.agreed
    return agreed.admitting is not None and agreed.admitting.until > 0


def called(network: NetworkConfig | None = None) -> tuple[Bed, list[NodeId]]:
    """A ring of two and a joiner whose answer to the call has just come."""
    bed = Bed(5, network=network, is_judged=False)
    ids = ring_of(bed, 2)
    bed.start(ids[2], ids[:2])
    until(bed, lambda: any(admitting(bed, node) for node in ids[:2]))
    return bed, ids


def cut_from(bed: Bed, sources: list[NodeId], targets: list[NodeId]) -> None:
    for source in sources:
        for target in targets:
            bed.world.network.clog(source, target)


def unconfirmed() -> Bed:
    """A joiner whose range owner never receives the report that it has taken its place."""
    bed, ids = called()
    cut_from(bed, ids[2:], ids[:2])
    bed.world.run_for(6 * SECOND)
    return bed


def late_place() -> Bed:
    """The offer of a place comes long after the joiner has answered the call, and its answer never."""
    bed, ids = called()
    cut_from(bed, ids[2:], ids[:2])
    cut_from(bed, ids[:2], ids[2:])
    bed.world.run_for(1_300 * MILLISECOND)
    for node in ids[:2]:
        bed.world.network.unclog(node, ids[2])
    bed.world.run_for(6 * SECOND)
    return bed


def slow_links() -> Bed:
    """A round trip takes longer than the repetition of a call, and the answer of the joiner never comes."""
    bed, ids = called(NetworkConfig(base_ns=135 * MILLISECOND, span_ns=0, jitter_ns=0))
    cut_from(bed, ids[2:], ids[:2])
    bed.world.run_for(6 * SECOND)
    return bed


def sleepers() -> Bed:
    """Five adjacent nodes sleep until the others have closed the gap."""
    bed = Bed(1, is_judged=False)
    ids = sorted(simulated_ids(1, 16))
    for index, node in enumerate(ids):
        bed.start(node, ids[: min(index, 2)])
        bed.world.run_for(SECOND // 4)
    bed.settle(20 * SECOND)
    for node in ids[3:8]:
        bed.world.pause(node, 4_100 * MILLISECOND)
    bed.world.run_for(10 * SECOND)
    return bed


def lonely_pair(cut_ms: int = 3_900) -> Bed:
    """Two adjacent nodes reach only each other, until the others have closed the gap over them."""
    bed = Bed(1, is_judged=False)
    ids = ring_of(bed, 8)
    bed.owners.is_whole = False
    cut_from(bed, ids[3:5], [*ids[:3], *ids[5:8]])
    cut_from(bed, [*ids[:3], *ids[5:8]], ids[3:5])
    bed.world.run_for(cut_ms * MILLISECOND)
    bed.owners.is_whole = True
    bed.owners.overlaps = len(bed.owners.overlapping())
    return bed


PLACES: dict[str, Callable[[], Bed]] = {
    "guardian_keeps": plain_join,
    "neighbour_keeps": plain_join,
    "joiner_answers_early": plain_join,
    "early_take_back": unconfirmed,
    "joiner_overstays": unconfirmed,
    "lease_from_the_place": late_place,
    "repeated_call_renews": slow_links,
    "leases_only_for_the_join": sleepers,
    "no_check_after_a_lapse": sleepers,
    "one_lease_is_enough": lonely_pair,
}


@pytest.mark.parametrize("name", list(MUTANTS))
def test_every_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = PLACES[name]
    with monkeypatch.context() as patch:
        MUTANTS[name](patch.setattr)
        assert place().owners.overlaps > 0
    assert place().owners.overlaps == 0, "the right code passes the same place"


@pytest.mark.parametrize(
    ("name", "scenario", "seeds"),
    [
        ("guardian_keeps", "storms", 10),
        ("neighbour_keeps", "storms", 10),
        ("joiner_answers_early", "moments", 40),
        ("leases_only_for_the_join", "storms", 10),
    ],
)
def test_runs_from_seeds_find_every_mutant_too(
    name: str, scenario: str, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without knowing where it hides. Most others need a loss at one moment of some milliseconds."""
    MUTANTS[name](monkeypatch.setattr)
    assert found_at(scenario, seeds) is not None


@pytest.mark.soak
@pytest.mark.parametrize("name", ["early_take_back", "no_check_after_a_lapse"])
def test_storms_find_every_mutant_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch.setattr)
    assert found_at("storms", 40) is not None


def found_at(scenario: str, seeds: int) -> int | None:
    """The first seed at which some key has two owners."""
    for seed in range(1, seeds + 1):
        if any(line.startswith("I6") for line in play(draw(seed, 40, scenario)).violations):
            return seed
    return None
