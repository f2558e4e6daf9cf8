"""The model of barriers that overtake: exact and lively under every schedule, and each planted bug is found."""

import pytest

from tests.simulation.overtaking_model import MUTANTS, faults


@pytest.mark.parametrize("seed", range(24))
def test_rows_are_exact_and_epochs_go_on_while_an_input_is_silent(seed: int) -> None:
    assert faults(seed, steps=1_500) == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_planted_bug_is_found(mutant: str) -> None:
    assert any(faults(seed, frozenset([mutant])) for seed in range(60))
