"""Measurements of `scaling-timeline`: when a stage was stable, and when more instances were no help."""

import pytest

from agiledart import csv
from agiledart_dataflow.plan.placement_rules import rules_of
from agiledart_experiments.registry import find
from agiledart_experiments.report import Settings
from agiledart_experiments.scaling import timeline_jobs
from agiledart_experiments.scaling.timeline import StageSample, helped, rate_between, seconds_to_stable, stays
from agiledart_kernel.errors import ConfigurationError


def looks(*seen: tuple[int, float | None]) -> list[StageSample]:
    """A look each second: instances and score."""
    return [StageSample(second, instances, score, 10.0 * second) for second, (instances, score) in enumerate(seen)]


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        ([], None),
        ([(1, 1.2), (1, None), (1, 0.9)], None),
        ([(1, 1.2), (1, 0.5), (2, 0.5), (2, 0.95), (2, 1.1)], 2.0),
        ([(1, 0.5), (2, 0.95), (4, 1.1), (4, 1.1)], 2.0),
        ([(1, 0.5), (2, None), (2, None)], None),
        ([(1, 0.5), (2, 1.1), (2, 0.8), (3, 1.2)], 3.0),
        ([(1, 0.5), (2, 0.6)], None),
    ],
)
def test_stability_begins_where_capacity_suffices_and_the_number_stays(
    seen: list[tuple[int, float | None]], seconds: float | None
) -> None:
    assert seconds_to_stable(looks(*seen)) == seconds


def test_the_number_is_stable_after_long_enough_without_a_change() -> None:
    seen: list[tuple[int, float | None]] = [(1, 0.5), (2, 1.1), (2, 1.1), (2, 1.1)]
    assert stays(looks(*seen), 2.0)
    assert not stays(looks(*seen), 2.5)
    assert not stays(looks((2, 1.1), (2, 1.1), (2, 1.1)), 1.0), "it never had too little"
    assert not stays([], 0.0)


def test_added_instances_help_when_they_bring_a_tenth_more_rows() -> None:
    assert helped(500.0, 1_000.0)
    assert not helped(1_000.0, 1_040.0)
    assert rate_between(looks(*[(1, None)] * 10), 4.0, 9.0) == 60.0
    assert rate_between([StageSample(1.0, 1, None)], 0.0, 9.0) == 0.0


@pytest.mark.parametrize(("job", "slow"), [("remove_duplicates", "parse"), ("word_count", "split"), ("top_k", "parse")])
def test_the_slow_step_has_hosts_of_its_own(job: str, slow: str) -> None:
    build = vars(timeline_jobs)[job]
    rules = {
        step.name: rules_of(dict(step.options))
        for step in build(csv("in.csv"), csv("out.csv"), workers="a2,a3").steps
        if step.traits.stage == "operator"
    }
    assert rules.pop(slow).on == ("a2", "a3")
    assert {rule.on for rule in rules.values()} == {(timeline_jobs.HOME,)}
    free = build(csv("in.csv"), csv("out.csv")).steps
    assert not any(rules_of(dict(step.options)).on for step in free)


def test_an_unknown_job_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it has remove-duplicates, top-k, word-count"):
        find("scaling-timeline").run(Settings(apps=("top",)))
