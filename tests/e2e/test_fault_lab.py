"""The fault lab: its draws depend on their seeds only, its checkers detect faults, and two faults of real agents
violate nothing.
"""

from pathlib import Path

import pytest
from benchmarks.faults.campaign import DrawOutcome, FaultCampaign
from benchmarks.faults.draws import CLASSES, LONGEST_SECONDS, drawn
from benchmarks.faults.invariants import by_window, is_prefix
from benchmarks.faults.job import expected_folds, expected_sums, read_folds
from benchmarks.faults.strikes import STRIKES


def test_a_draw_depends_on_its_number_and_class_alone() -> None:
    for number in range(200):
        draw = drawn(number, CLASSES)
        assert drawn(number, (draw.kind,)) == draw, "the line that repeats it gives it again"
        assert 0.5 <= draw.seconds <= LONGEST_SECONDS
    assert {drawn(number, CLASSES).kind for number in range(200)} == set(CLASSES) == set(STRIKES)


def test_the_row_checkers_detect_faults(tmp_path: Path) -> None:
    folds, sums = expected_folds(), expected_sums()
    assert is_prefix(folds[:10], folds)
    assert is_prefix([], folds)
    assert not is_prefix(folds[1:10], folds), "the first is lost"
    assert not is_prefix([*folds[:9], folds[8]], folds), "one came twice"
    assert not is_prefix([*folds[:9], (folds[9][0], folds[9][1], -1)], folds), "one is wrong"
    assert by_window([sums[1], sums[0], *sums[2:]]) == sums, "keys of a window come in any order"
    assert by_window([*sums[:5], *sums[6:], sums[5]]) != sums, "a window that comes too late"
    assert is_prefix(by_window([*sums[:5], sums[7]]), sums)
    torn = tmp_path / "torn.csv"
    torn.write_text("".join(f"{a},{b},{c}\n" for a, b, c in folds[:3]) + "12\n")
    assert not is_prefix(read_folds(torn), folds), "a torn row is none"


def _nothing_violated(outcomes: list[DrawOutcome]) -> None:
    found = [(str(outcome.draw), outcome.violations, outcome.draw.again) for outcome in outcomes if outcome.violations]
    assert not found


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.soak
def test_a_killed_executor_and_a_stopped_agent_violate_nothing() -> None:
    campaign = FaultCampaign()
    campaign.run(2, ("kill-executor", "stop"), 2, 10.0, lambda outcome, lab: None)
    assert len(campaign.outcomes) == 2
    _nothing_violated(campaign.outcomes)


@pytest.mark.e2e
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_fifty_draws_violate_nothing() -> None:
    campaign = FaultCampaign()
    campaign.run(1, CLASSES, 50, 50.0, lambda outcome, lab: None)
    _nothing_violated(campaign.outcomes)
