"""A relay that lies costs time, and no row: rows come once and in order, by a path that works."""

import pytest

from agiledart_executor.routes.circuit_costs import CircuitCosts
from tests.simulation.lying_relays import LIES, LyingRelayRun


def lied(seed: int, lie: str) -> LyingRelayRun:
    run = LyingRelayRun(seed, lie)
    run.run()
    return run


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_relay_changes_no_row(lie: str) -> None:
    runs = [lied(seed, lie) for seed in (3, 4)]
    assert [run.violations for run in runs] == [{}, {}]
    assert all(run.lied for run in runs)


@pytest.mark.soak
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("first", range(5, 205, 50))
def test_a_lying_relay_changes_no_row_in_many_runs(first: int, lie: str) -> None:
    for seed in range(first, first + 50):
        assert lied(seed, lie).violations == {}, seed


def test_without_a_memory_of_broken_circuits_rows_return_to_the_liar_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CircuitCosts, "left_soon", lambda *_: None)
    assert any(line.startswith("P7") for line in lied(20, "alters rows").violations)
