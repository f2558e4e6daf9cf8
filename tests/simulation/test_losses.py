"""States of the last epoch are lost: runs go on from the epoch before, and what lies between is committed twice, and no more."""

import pytest

from agiledart_recovery.wire.register_value import RunState
from agiledart_simulation.runs.campaign import Campaign, play
from agiledart_simulation.runs.recovery_run import RecoveryRun
from agiledart_simulation.runs.scenario import OF_LOSSES, draw

FAST = range(1, 21)
SOAK = range(21, 1_021)


@pytest.mark.parametrize("first", range(FAST.start, FAST.stop, 10))
def test_whole_runs(first: int) -> None:
    for seed in range(first, first + 10):
        scenario = draw(seed, name="losses")
        assert play(scenario).violations == (), f"replay: {scenario.command}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SOAK.start, SOAK.stop, 100))
def test_whole_runs_deeper(first: int) -> None:
    for seed in range(first, first + 100):
        scenario = draw(seed, name="losses")
        assert play(scenario).violations == (), f"replay: {scenario.command}"


def test_the_fast_seeds_draw_every_kind_of_fault() -> None:
    assert {kind for seed in FAST for kind in draw(seed, name="losses").kinds} == set(OF_LOSSES)


@pytest.mark.soak
@pytest.mark.slow
def test_a_campaign_reaches_everything() -> None:
    campaign = Campaign("losses")
    campaign.run(range(1, 101), lambda scenario, report: not report.violations)
    assert campaign.failed == []
    assert campaign.unreached == []


def test_rows_between_two_epochs_are_duplicated_and_none_is_lost() -> None:
    calm = {"kinds": ("lose",), "steps": 4, "step_ms": 4_000, "loss": 0.0, "duplicate": 0.0, "reorder": 0.0}
    for seed in FAST:
        run = RecoveryRun(draw(seed, name="losses", fixed=calm))
        report = run.run()
        assert report.violations == ()
        courses, repeated = run.ledger.courses()
        value = run.ledger.newest
        assert value is not None
        assert value.state is RunState.FINISHED
        if repeated:
            assert dict(report.reached)["rolled back"]
            rows = run.ledger.committed_rows()
            assert len(rows) == 2 * run.rows + repeated
            assert len(dict.fromkeys(rows)) == courses[value.committed].place == 2 * run.rows
            return
    pytest.fail("no run went back")
