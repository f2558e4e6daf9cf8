"""Experiments compute what they print: same seed, same figures; a broken ring misses its goals."""

import json
from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_experiments import deployment_latency, hop_count, operators_per_node, overlay_recovery, schedulers
from agiledart_experiments.registry import EXPERIMENTS, find, run_experiment
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_experiments.ring_lookups import RingLookups, nearest, quantile
from agiledart_experiments.rings import built_ring
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_simulation.checkers.routing import root_of
from agiledart_simulation.world.overlay_ring import simulated_ids


def quiet(_: str) -> None:
    """Says nothing."""


def test_nearest_is_the_root_also_around_zero_and_at_ties() -> None:
    ids = [NodeId(node) for node in (10, 20, 200, 250)]
    for key in range(256):
        assert nearest(ids, NodeId(key), 8) == root_of(ids, NodeId(key), 8)
    assert nearest(ids, NodeId(15), 8) == 10, "the smaller one at equal distance"
    assert nearest(ids, NodeId(2), 8) == 10
    assert nearest(ids, NodeId(0), 8) == 250


def test_quantiles_are_computed() -> None:
    assert quantile([], 0.5) == 0.0
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(range(100), 0.99) == 99
    assert quantile([7], 1.0) == 7


def test_every_experiment_has_its_module_and_its_columns() -> None:
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name
        assert callable(experiment.run)
        assert experiment.y


def test_an_unknown_name_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(ConfigurationError, match="Did you mean hop-count"):
        find("hop-counts")


def test_a_missed_goal_fails_the_report() -> None:
    assert ExperimentReport({}, ()).passed
    assert not ExperimentReport({}, (), (Goal("a", True), Goal("b", False))).passed


def test_hop_count_of_a_small_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of one seed agree in every figure but their cost; log16(30) is 1.2."""
    monkeypatch.setattr(hop_count, "SMALL", ((30,), 300))
    documents = [run_experiment(find("hop-count"), Settings(7))[1] for _ in range(2)]
    for document in documents:
        assert document.pop("cpu_seconds") > 0
        assert document.pop("memory_mb") > 0
        assert len(document.pop("load")) == 2
        for row in document["results"]:
            assert row.pop("cpu_seconds") >= row.pop("cpu_seconds_of_build") > 0
    assert documents[0] == documents[1]
    (row,) = documents[0]["results"]
    assert row["lookups"] == 300
    assert row["delivered_correctly"] == 1.0
    assert 0.9 < row["hops_mean"] < 1.6
    assert documents[0]["passed"]


def test_misrouted_look_ups_are_counted_as_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = built_ring(40, 3, quiet)
    monkeypatch.setattr(LeafSet, "covers", lambda self, key: False)
    ledger = RingLookups(ring, 3)
    ledger.send(ring.members, 100)
    ring.world.run_for(10 * SECOND)
    ledger.collect()
    assert ledger.wrong + ledger.lost > 0
    assert ledger.delivered_correctly < 1


def test_recovery_is_measured_from_the_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay_recovery, "SMALL", (40, (1, 2)))
    report = find("overlay-recovery").run(Settings(2))
    rows = [row for row in report.rows if row["which"] == "random"]
    assert [row["failures"] for row in rows] == [1, 2, 4]
    assert all(0.5 < row["recovery_seconds"] < 60 for row in rows), (
        "no faster than a silent peer can be distinguished from a slow one"
    )
    assert all(row["violations"] == 0 for row in report.rows)


def test_the_command_line_runs_an_experiment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hop_count, "SMALL", ((20,), 50))
    assert run_cli(["experiment", "list"]) == 0
    assert "hop-count" in capsys.readouterr().out
    assert run_cli(["experiment", "run", "hop-count", "-o", "json"]) == 0
    captured = capsys.readouterr()
    document: dict[str, Any] = json.loads(captured.out)
    assert document["experiment"] == "hop-count"
    assert "nodes join" in captured.err
    assert run_cli(["experiment", "run", "hop-count"]) == 0
    assert "hops_mean" in capsys.readouterr().out
    assert run_cli(["experiment", "run", "nothing"]) != 0
    assert run_cli(["experiment", "run", "hop-count", "--plot", "hops.txt"]) != 0
    assert "must end in" in capsys.readouterr().err


def test_given_sizes_replace_those_of_the_scale(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hop_count, "SMALL", ((100, 400), 50))
    assert run_cli(["experiment", "run", "hop-count", "--sizes", "20, 10,20", "-o", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [row["nodes"] for row in document["results"]] == [10, 20]
    for wrong, told in (("ten", "numbers separated by commas"), ("1", "the least size is 2")):
        assert run_cli(["experiment", "run", "hop-count", "--sizes", wrong]) == 2
        assert told in capsys.readouterr().err
    assert run_cli(["experiment", "run", "churn", "--sizes", "20"]) == 2
    assert "churn runs at the sizes of its scale only" in capsys.readouterr().err


def test_ids_are_distinct() -> None:
    assert len(dict.fromkeys(simulated_ids(1, 1000))) == 1000


def test_operators_are_counted_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators_per_node, "SMALL", (60, 2, (2, 4)))
    report = find("operators-per-node").run(Settings(3))
    assert [(row["applications"], row["cores"]) for row in report.rows] == [(2, None), (4, None), (4, "1, 4, 8")]
    assert all(row["cpu_seconds"] > 0 for row in report.rows)
    assert 0 < report.rows[0]["operators"] < report.rows[1]["operators"]
    assert all(row["refused"] == 0 for row in report.rows)
    assert report.rows[0]["share_below_3_published"] == 0.9785
    assert report.rows[1]["share_below_4_published"] == 0.9989


def test_schedulers_are_compared_with_the_number_that_the_rule_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedulers, "SMALL", (40, 2, (4,)))
    report = find("schedulers").run(Settings(3))
    assert {(row["scope"], row["submitted"]): row["schedulers_model"] for row in report.rows} == {
        ("zone", "all at once"): 2,
        ("zone", "one a second"): 2,
        ("region", "all at once"): 1,
        ("region", "one a second"): 1,
    }
    assert report.passed


def test_a_single_master_makes_applications_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment_latency, "SMALL", (40, 4, (4, 12)))
    report = find("deployment-latency").run(Settings(3))
    assert [row["queue_wait_mean_s_model"] for row in report.rows] == [1.5, 5.5]
    for row in report.rows:
        assert row["queue_wait_mean_s"] < row["queue_wait_mean_s_single_master"]
    assert report.passed


def test_waiting_time_is_compared_with_the_single_master() -> None:
    def row(applications: int, ours: float, master: float) -> Row:
        model = (applications - 1) / 2
        return {
            "applications": applications, "queue_wait_mean_s": ours, "queue_wait_mean_s_single_master": master,
            "queue_wait_mean_s_model": model, "service_mean_s": 1.0, "refused": 0,
        }  # fmt: skip

    few = row(10, 0.4, 4.5)
    assert all(goal.met for goal in deployment_latency.goals_for([few, row(250, 6.0, 124.5)]))
    missed = [goal.what for goal in deployment_latency.goals_for([few, row(250, 24.9, 124.5)]) if not goal.met]
    assert missed == [
        "no application waits longer on average than 49/2 service times, as measured",
        "slope of the waiting below 10 % of the single master's",
    ]
    missed = [goal.what for goal in deployment_latency.goals_for([few, row(250, 24.4, 100.0)]) if not goal.met]
    assert missed[0] == "the waiting of the single master is that of the model"
    assert missed[1].startswith("250 applications wait a fifth as long")
