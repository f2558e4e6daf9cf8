"""Each planted bug is found within its budget of seeds, by the swarm and its checkers; the code without it passes those seeds."""

import pytest

from agiledart_simulation.runs.campaign import play
from agiledart_simulation.runs.scenario import draw
from tests.simulation.mutants import MUTANTS, Mutant


def complaints(mutant: Mutant, seed: int) -> list[str]:
    """Reports of the checkers that should find a bug, in the run of a seed."""
    report = play(draw(seed, 25, mutant.scenario, mutant.fixed))
    return [line for line in report.violations if line.startswith(mutant.complaint)]


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(mutant, id=mutant.name, marks=[pytest.mark.soak] if mutant.is_slow else []) for mutant in MUTANTS],
)
def test_every_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        mutant.plant(patch)
        seed = mutant.found_at(complaints)
    assert seed is not None, f"{mutant.name}: not found in {mutant.seeds} seeds of {mutant.scenario}"
    assert complaints(mutant, seed) == [], "the code without the bug passes the seed that found it"


def test_at_least_ten_bugs_and_all_within_a_hundred_seeds() -> None:
    assert len(MUTANTS) >= 10
    assert all(mutant.known <= mutant.seeds <= 100 for mutant in MUTANTS)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
