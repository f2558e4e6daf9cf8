"""Experiments of paths: same seed, same document; every row has its fields; a policy that does not learn misses the goals."""

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_experiments.paths import (
    path_change,
    path_convergence,
    path_delays,
    path_exchange,
    path_exploration,
    path_lookahead,
    path_regret,
    path_settings,
)
from agiledart_experiments.paths.figures import ci95, mean, median
from agiledart_experiments.paths.grenoble import RATE_LEAST, replays
from agiledart_experiments.paths.networks import SIZES, PathNetwork, grid, grid_of_nodes
from agiledart_experiments.paths.streets import generated, strongest_part, sydney
from agiledart_experiments.registry import find, run_experiment
from agiledart_experiments.report import Settings
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.estimates import Estimates
from agiledart_shuffle.graph import UNREACHABLE
from agiledart_shuffle.registry import POLICIES
from agiledart_shuffle.simple_paths import SimplePaths
from tests.data import data_path
from tests.unit.experiments.documents import without_machine_fields

DATA = os.environ.get("AGILEDART_DATA")
"""Where it lies really; tests here see nothing of it unless they ask."""

PATHS = (
    "path-regret",
    "path-convergence",
    "path-delays",
    "path-lookahead",
    "path-exploration",
    "path-change",
    "path-exchange",
)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGILEDART_DATA", raising=False)
    monkeypatch.setattr(path_regret, "SMALL", ((25,), 2))
    monkeypatch.setattr(path_convergence, "SMALL", ((25,), 2))
    monkeypatch.setattr(path_delays, "SMALL", (1, 60))
    monkeypatch.setattr(path_lookahead, "SMALL", ((25,), 2))
    monkeypatch.setattr(path_exploration, "SMALL", 1)
    monkeypatch.setattr(path_change, "SMALL", ((25,), 2))
    monkeypatch.setattr(path_exchange, "SMALL", ((25,), 1))


def document(name: str, seed: int = 3) -> dict[str, Any]:
    """Return the document of one run, without what depends on the machine."""
    return without_machine_fields(run_experiment(find(name), Settings(seed))[1])


@pytest.mark.parametrize("name", PATHS)
def test_the_same_seed_gives_the_same_document_with_the_plotted_columns(name: str) -> None:
    first, experiment = document(name), find(name)
    assert json.dumps(first) == json.dumps(document(name))
    assert first["results"]
    for row in first["results"]:
        assert {experiment.x, *experiment.y, *experiment.series} <= set(row)


def test_another_seed_gives_other_figures() -> None:
    assert document("path-regret")["results"] != document("path-regret", 4)["results"]


def test_regret_has_a_row_for_each_size_and_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_regret, "PACKETS", 30)
    rows = find("path-regret").run(Settings(1, sizes=(9, 16))).rows
    assert [(row["nodes"], row["policy"]) for row in rows] == [(n, p) for n in (9, 16) for p in path_regret.POLICIES]
    assert {row["links"] for row in rows} == {12, 24}
    assert run_cli(["experiment", "run", "path-regret", "--sizes", "26"]) == 2


def test_a_planner_that_does_not_learn_misses_the_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Estimates, "record", lambda *_, **__: None)
    assert not find("path-regret").run(Settings(1)).passed


@pytest.mark.parametrize("nodes", SIZES)
def test_grids_have_their_links_and_no_isolated_node(nodes: int) -> None:
    side, links = SIZES[nodes]
    for number in range(5):
        graph = grid(side, links, RandomStream(1, number))
        assert (graph.nodes, graph.links) == (nodes, links)
        assert all(graph.leaving[node] for node in range(nodes - 1))
        assert all(graph.entering[node] for node in range(1, nodes))


def test_the_mean_optimal_delay_is_that_of_the_specification() -> None:
    for nodes, expected in ((25, 20.2), (36, 20.2), (64, 24.4), (144, 47.2)):
        found = mean([grid_of_nodes(nodes, 1, number).costs_to_go[0] for number in range(60)])
        assert found == pytest.approx(expected, rel=0.1)


def test_changes_make_the_best_path_worse_or_another_one_better() -> None:
    network = grid_of_nodes(36, 1, 1)
    before = network.costs_to_go[0]
    worse = PathNetwork(network.graph, 0, network.sink, tuple(path_change.got_worse(network)))
    better = PathNetwork(network.graph, 0, network.sink, tuple(path_change.got_better(network)))
    assert worse.costs_to_go[0] > before > better.costs_to_go[0]
    assert sum(a != b for a, b in zip(network.rates, worse.rates, strict=True)) == len(network.best_path)


def test_the_best_paths_come_in_order() -> None:
    network = grid_of_nodes(36, 1, 2)
    paths = path_delays.best_paths(network, 10)
    costs = [sum(1.0 / network.rates[link] for link in path) for path in paths]
    assert costs == sorted(costs)
    assert costs[0] == pytest.approx(network.costs_to_go[0])
    assert list(paths[0]) == network.best_path
    assert len(dict.fromkeys(paths)) == 10


def test_streets_reach_each_other_both_ways() -> None:
    streets = generated(RandomStream(2))
    graph = streets.graph
    assert len(streets.places) == graph.nodes
    assert 2 * len(streets.segments()) == graph.links, "every street leads both ways"
    assert graph.nodes > 250
    assert 2.2 < graph.links / graph.nodes < 2.8
    assert max(graph.hops_to_go(7)) < UNREACHABLE
    part, names = strongest_part([("c", "b"), ("a", "b"), ("b", "a")])
    assert (part.links, names) == (2, ["b", "a"])


def test_figures_are_drawn() -> None:
    assert (mean([]), median([]), ci95([1.0])) == (0.0, 0.0, 0.0)
    assert median([3.0, 1.0, 2.0, 10.0]) == 2.5
    assert ci95([1.0, 2.0, 3.0]) == pytest.approx(1.96 / 3**0.5)


def test_measured_links_are_replayed_in_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wireless_links").mkdir()
    with gzip.open(tmp_path / "wireless_links" / "grenoble50_pdr.csv.gz", "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("datetime", "src", "dst", "channel", "mean_rssi", "pdr"))
        for minute, src, dst, pdr in ((0, 0, 1, 0.5), (0, 1, 2, 0.5), (5, 0, 1, 0.0), (2, 0, 1, 0.9)):
            rows.writerow((f"2018-01-11T16:{minute:02}:00", src, dst, 11, -70, pdr))
    monkeypatch.setenv("AGILEDART_DATA", str(tmp_path))
    (replay,) = replays(1, 3)
    assert (replay.network.source, replay.network.sink) == (0, 2)
    seen = [rates and rates[0] for rates in replay.minutes()]
    assert seen == [None, None, 0.9, None, None, RATE_LEAST]


def test_sydney_is_the_papers_box_enlarged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sydney() is None
    if DATA is not None:
        monkeypatch.setenv("AGILEDART_DATA", DATA)
    monkeypatch.setenv("AGILEDART_DATA", str(data_path("road_sydney").parent))
    streets = sydney()
    assert streets is not None
    graph = streets.graph
    assert len(streets.places) == graph.nodes
    assert all(151.1 < longitude < 151.3 and -34 < latitude < -33.8 for longitude, latitude in streets.places)
    assert 300 <= graph.nodes < 450
    assert max(graph.hops_to_go(0)) < UNREACHABLE


def test_every_policy_of_the_table_is_measured_somewhere() -> None:
    assert {*POLICIES} <= {*path_regret.POLICIES, "optimal"}


def test_settings_of_the_sweep_have_the_paths_that_they_name() -> None:
    """76 disjoint routes; 4³ ways through three stages; C(10, 5) = 252 ways over a one-way grid of 6 × 6."""
    for make, links, paths in (
        (path_settings.parallel_routes(76, 6), 456, 76),
        (path_settings.stages_in_turn(3, 4), 24, 64),
        (path_settings.directed_grid(6, 6), 60, 252),
    ):
        network = make(RandomStream(1, "sweep"))
        found = SimplePaths(network.graph, network.source, network.sink, RandomStream(2))
        count = 0
        while found.draw() is not None:
            count += 1
        assert (network.graph.links, count) == (links, paths)
    to_sink = path_settings.streets(8, is_directed=True)(RandomStream(3, "sweep"))
    togo = to_sink.graph.hops_to_go(to_sink.sink)
    assert togo[to_sink.source] == 8
    assert all(togo[b] < togo[a] for a, b in zip(to_sink.graph.tails, to_sink.graph.heads, strict=True))


def test_the_sweep_names_the_setting_that_comes_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_settings, "SETTINGS", {"grid": path_settings.directed_grid(3, 3)})
    monkeypatch.setattr(path_settings, "SMALL", (2, 60))
    report = path_settings.run(Settings(1))
    assert [row["policy"] for row in report.rows] == list(path_settings.POLICIES)
    assert "nearest: grid" in report.goals[0].what
    printed = {
        "paper": {"ratio_after_50": 7.8 / 5.9, "share_within_1.32": 0.91, "first_optimal_trial": 26},
        "next-hop": {"share_within_1.32": 0.78, "first_optimal_trial": 33},
        "end-to-end": {"share_within_1.32": 0.62, "first_optimal_trial": 38},
    }
    rows = [{**row, **printed.get(row["policy"], {})} for row in report.rows]
    assert path_settings.distance_of(rows) == pytest.approx(0, abs=1e-9)
