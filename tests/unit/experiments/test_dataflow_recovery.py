"""Dataflows after simultaneous deaths: affected ones restart, those that lost too much wait, and nothing is committed wrongly."""

import pytest

from agiledart_experiments.recovery.dataflow_recovery import LIMIT_NS, StruckRun
from agiledart_experiments.registry import find
from agiledart_experiments.report import Settings
from agiledart_kernel.instants import SECOND
from agiledart_simulation.runs.scenario import draw


def struck_run(seed: int) -> StruckRun:
    return StruckRun(draw(seed, name="recovery", fixed={"nodes": 7}))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("seed", range(5))
def test_an_application_that_loses_one_part_restarts(seed: int, place: int) -> None:
    seconds, wrong = struck_run(seed).strike((place,))
    assert not wrong
    assert seconds is not None
    assert 1.5 <= seconds < 10, "no faster than a silent host can be distinguished from a slow one"


@pytest.mark.parametrize("seed", range(3))
def test_an_application_that_loses_two_of_three_voters_and_a_part_waits(seed: int) -> None:
    run = struck_run(seed)
    seconds, wrong = run.strike((1, 4, 5))
    assert not wrong
    assert seconds is None
    assert run.world.now >= LIMIT_NS
    assert run.world.now < LIMIT_NS + 20 * SECOND


@pytest.mark.soak
def test_more_failures_hit_more_applications_and_each_takes_about_as_long() -> None:
    report = find("dataflow-recovery").run(Settings(3, sizes=()))
    assert report.passed, report.goals
    hit = [row["hit"] for row in report.rows]
    assert hit[0] < hit[-1]
    assert all(row["recovery_seconds"] >= 1.5 for row in report.rows if row["hit"] > row["wait"])
    assert find("dataflow-recovery").run(Settings(3)).rows == report.rows
