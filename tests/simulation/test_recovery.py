"""Hostile runs of an application with state: what is committed is what a run without failures commits."""

import os
import subprocess
import sys

import pytest

from agiledart_simulation.runs.campaign import Campaign, play
from agiledart_simulation.runs.recovery_run import RecoveryRun
from agiledart_simulation.runs.scenario import OF_RECOVERY, draw

FAST = range(1, 51)
SOAK = range(51, 2_051)

_PROGRAM = """
from agiledart_simulation.runs.recovery_run import RecoveryRun
from agiledart_simulation.runs.scenario import draw
print([RecoveryRun(draw(seed, name="recovery")).run().digest for seed in (3, 8)])
"""


def check(seed: int) -> dict[str, int]:
    scenario = draw(seed, name="recovery")
    report = play(scenario)
    assert report.violations == (), f"replay: {scenario.command}"
    return dict(report.reached)


@pytest.mark.parametrize("first", range(FAST.start, FAST.stop, 10))
def test_whole_runs(first: int) -> None:
    for seed in range(first, first + 10):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(SOAK.start, SOAK.stop, 100))
def test_whole_runs_deeper(first: int) -> None:
    for seed in range(first, first + 100):
        check(seed)


def test_the_fast_seeds_draw_every_kind_of_fault() -> None:
    assert {kind for seed in FAST for kind in draw(seed, name="recovery").kinds} == set(OF_RECOVERY)


@pytest.mark.slow
def test_a_campaign_reaches_everything() -> None:
    campaign = Campaign("recovery")
    campaign.run(range(1, 101), lambda scenario, report: not report.violations)
    assert campaign.failed == []
    assert campaign.unreached == []


def _digests(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=240
    ).stdout


def test_two_processes_with_different_hash_seeds() -> None:
    assert _digests("0") == _digests("12345")


def test_a_run_without_faults_needs_one_life() -> None:
    run = RecoveryRun(draw(1, name="recovery", fixed={"steps": 0, "loss": 0.0, "duplicate": 0.0, "reorder": 0.0}))
    report = run.run()
    value = run.ledger.newest
    assert report.violations == ()
    assert value is not None
    assert value.life == 1
    assert len(run.ledger.committed_rows()) == 2 * run.rows
