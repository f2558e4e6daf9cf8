"""Hostile runs in which stages take new terms: what is committed is what a run without changes and failures commits."""

import pytest

from agiledart_simulation.runs.campaign import Campaign, play
from agiledart_simulation.runs.recovery_run import RecoveryRun
from agiledart_simulation.runs.scenario import OF_SCALING, draw

FAST = range(1, 51)
SOAK = range(51, 2_051)


def check(seed: int) -> None:
    scenario = draw(seed, name="scaling")
    report = play(scenario)
    assert report.violations == (), f"replay: {scenario.command}"


@pytest.mark.parametrize("first", range(FAST.start, FAST.stop, 10))
def test_whole_runs(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SOAK.start, SOAK.stop, 100))
def test_whole_runs_deeper(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def test_the_fast_seeds_draw_every_kind() -> None:
    assert {kind for seed in FAST for kind in draw(seed, name="scaling").kinds} == set(OF_SCALING)


@pytest.mark.soak
def test_a_campaign_reaches_every_step_with_every_death() -> None:
    campaign = Campaign("scaling")
    campaign.run(range(1, 601), lambda scenario, report: not report.violations)
    assert campaign.failed == []
    assert campaign.unreached == []


def test_without_faults_every_change_is_done_in_one_life() -> None:
    kinds = ("grow", "shrink", "rebalance", "drain", "both", "silence")
    calm = {"kinds": kinds, "steps": 15, "loss": 0.0, "duplicate": 0.0, "reorder": 0.0, "step_ms": 1_000}
    done = 0
    for seed in range(1, 4):
        run = RecoveryRun(draw(seed, name="scaling", fixed=calm))
        report = run.run()
        value = run.ledger.newest
        assert report.violations == ()
        assert value is not None
        assert value.life == 1
        whys = {change.why for change in value.changes if change.fate != "done"}
        assert whys <= {"no room", "its input had ended"}
        done += sum(change.fate == "done" for change in value.changes)
    assert done > 5
