"""Both experiments of scaling: same seed, same figures; a policy that does nothing misses the goals."""

import pytest

from agiledart_experiments.registry import find, run_experiment
from agiledart_experiments.report import Settings
from agiledart_experiments.scaling import closed_loop
from agiledart_experiments.scaling.queue_model import InstanceChange
from agiledart_kernel.errors import ConfigurationError
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.scaling_policy import ScalingDecision
from tests.unit.experiments.documents import without_machine_fields


def test_secant_steps_are_computed() -> None:
    documents = [without_machine_fields(run_experiment(find("secant-steps"), Settings(3))[1]) for _ in range(2)]
    assert documents[0] == documents[1]
    assert documents[0]["passed"]
    by_start = {
        row["start"]: row for row in documents[0]["results"] if row["noise"] == 0.0 and row["capacity"] == "30-10"
    }
    assert by_start["warm, origin"]["iterations_mean"] < by_start["warm, last phase"]["iterations_mean"]
    assert by_start["warm, last phase"]["iterations_mean"] < by_start["0-10"]["iterations_mean"]


def test_the_default_policy_meets_its_goals() -> None:
    report, document = run_experiment(find("closed-loop"), Settings(2, policy="secant"))
    assert report.passed, [goal for goal in report.goals if not goal.met]
    assert {row["policy"] for row in document["results"] if "seeds" in row} == {"secant"}


class Idle:
    """Never changes anything."""

    def decide(self, measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        """Today's number."""
        return ScalingDecision(measures.instances, "idle")


def test_a_policy_that_does_nothing_misses_the_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_loop, "policy_named", lambda _: Idle())
    report = run_experiment(find("closed-loop"), Settings(2, policy="secant"))[0]
    assert [goal.what for goal in report.goals if not goal.met] == [
        "secant: ×4 is met within 4 intervals in the worst seed"
    ]


def test_reversals_are_counted_by_stage_and_within_a_minute() -> None:
    changes = [
        InstanceChange(10, 0, 4, 8),
        InstanceChange(30, 1, 8, 4),
        InstanceChange(60, 0, 8, 6),
        InstanceChange(90, 0, 6, 5),
        InstanceChange(151, 0, 5, 9),
        InstanceChange(200, 0, 9, 9),
        InstanceChange(210, 0, 9, 5),
    ]
    assert closed_loop._reversals(changes) == 1 + 0


def test_a_policy_option_needs_an_experiment_that_compares_policies() -> None:
    with pytest.raises(ConfigurationError, match="hop-count compares no scaling policies"):
        run_experiment(find("hop-count"), Settings(policy="secant"))
    with pytest.raises(ConfigurationError, match="Did you mean ds2"):
        run_experiment(find("closed-loop"), Settings(policy="ds3"))
