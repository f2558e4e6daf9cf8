"""Hostile runs of gates that lease hosts: no host is forgotten, none is paid twice, and every gate stays within its limits."""

import pytest

from agiledart_simulation.runs.campaign import Campaign, play
from agiledart_simulation.runs.leases_run import LeasesRun
from agiledart_simulation.runs.scenario import OF_LEASES, draw
from tests.simulation.lease_mutants import LEASE_MUTANTS
from tests.simulation.mutants import Mutant
from tests.simulation.test_recovery_mutants import complaints

FAST = range(1, 51)

MENDED = (140, 189, 213, 216)
"""Seeds that found faults with the pause after a join: hosts without a lease, and the clock and the room of the checker."""

HANDED_OVER = ((72, ("ring-partition",)), (42, ("ring-partition", "vanish")))
"""Seeds of hosts that change hands in a partition and end before the former gate reads it: two gates booked one unit (L7)."""


def check(seed: int) -> None:
    scenario = draw(seed, name="leases")
    assert play(scenario).violations == (), f"replay: {scenario.command}"


@pytest.mark.parametrize("seed", [*FAST, *MENDED])
def test_whole_runs(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize(("seed", "kinds"), HANDED_OVER)
def test_hosts_that_change_hands_in_partitions(seed: int, kinds: tuple[str, ...]) -> None:
    assert play(draw(seed, 25, "leases", {"kinds": kinds})).violations == ()


@pytest.mark.soak
@pytest.mark.parametrize("first", range(51, 2_051, 100))
def test_whole_runs_deeper(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def test_the_fast_seeds_draw_every_kind_of_fault() -> None:
    assert {kind for seed in FAST for kind in draw(seed, name="leases").kinds} == set(OF_LEASES)


@pytest.mark.soak
def test_a_campaign_reaches_everything() -> None:
    campaign = Campaign("leases")
    campaign.run(range(1, 201), lambda scenario, report: not report.violations)
    assert campaign.failed == []
    assert campaign.unreached == []


@pytest.mark.parametrize("seed", [3, 8])
def test_the_same_seed_runs_the_same(seed: int) -> None:
    assert LeasesRun(draw(seed, name="leases")).run() == LeasesRun(draw(seed, name="leases")).run()


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in LEASE_MUTANTS])
def test_every_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        mutant.plant(patch)
        seed = mutant.found_at(complaints)
    assert seed is not None, f"{mutant.name}: not found in {mutant.seeds} seeds"
    assert complaints(mutant, seed) == [], "the code without the bug passes the seed that found it"
