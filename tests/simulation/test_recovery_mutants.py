"""Each rule of recovery and of routes that is broken on purpose is found within a hundred seeds, which pass without the bug."""

import pytest

from agiledart_simulation.runs.campaign import play
from agiledart_simulation.runs.scenario import draw
from tests.simulation.mutants import Mutant
from tests.simulation.recovery_mutants import RECOVERY_MUTANTS
from tests.simulation.routes_mutants import ROUTES_MUTANTS
from tests.simulation.scaling_mutants import SCALING_MUTANTS


def complaints(mutant: Mutant, seed: int) -> list[str]:
    """Reports of the checkers; a machine whose own assertion fails has found it, too."""
    try:
        report = play(draw(seed, 25, mutant.scenario, mutant.fixed))
    except AssertionError as error:
        return [f"{mutant.complaint}: {error}"]
    return [line for line in report.violations if line.startswith(mutant.complaint)]


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.soak] if each.is_slow else [])
        for each in (*RECOVERY_MUTANTS, *SCALING_MUTANTS, *ROUTES_MUTANTS)
    ],
)
def test_every_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        mutant.plant(patch)
        seed = mutant.found_at(complaints)
    assert seed is not None, f"{mutant.name}: not found in {mutant.seeds} seeds"
    assert complaints(mutant, seed) == [], "the code without the bug passes the seed that found it"
