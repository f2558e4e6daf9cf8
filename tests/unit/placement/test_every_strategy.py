"""Requirements of the placement specification §7 on every shipped strategy, on generated problems."""

from dataclasses import replace

import pytest

from agiledart.placement import ALL_STRATEGIES, Objective, PlacementOptions, place
from agiledart.placement.conformance import check_strategy, generated_request

STRATEGIES = [name for name in ALL_STRATEGIES if name != "odp"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_shipped_strategy_conforms(name: str) -> None:
    findings = [finding for finding in check_strategy(name) if not finding.rule.startswith("capacities")]
    assert [(finding.rule, finding.detail) for finding in findings if finding.passed is not True] == []


@pytest.mark.parametrize("name", ["hill_climbing", "hybrid", "mopa_probe"])
def test_the_result_is_never_worse_than_a_feasible_start(name: str) -> None:
    for seed in range(6):
        request = generated_request(seed)
        objective = Objective("usage")
        start = place(request, "random", PlacementOptions(objective, seed=seed))
        if not start.is_feasible or start.placement is None or start.evaluation is None:
            continue
        result = place(replace(request, start=start.placement.nodes), name, PlacementOptions(objective))
        assert result.evaluation is not None
        assert result.is_feasible
        assert result.evaluation.value <= start.evaluation.value + 1e-9


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_operator_without_candidates_is_named(name: str) -> None:
    request = generated_request(0)
    stages = tuple(replace(stage, zone="nowhere") if stage.name == "o2" else stage for stage in request.stages)
    result = place(replace(request, stages=stages), name)
    assert not result.is_feasible
    assert {"kind": "candidate", "operator": "o2", "rule": "zone 'nowhere'", "node": None} in result.shortfall


@pytest.mark.parametrize("name", STRATEGIES)
def test_topologies_with_exclusive_nodes_share_none(name: str) -> None:
    """Strategies that cannot keep the rule say so by a violation; none raises."""
    request = generated_request(1, nodes=6)
    other = len(request.stages)
    twins = tuple(
        replace(stage, stage=stage.stage + other, name=f"{stage.name}'", application=1, pinned=None, candidates=None)
        for stage in request.stages
    )
    edges = (*request.edges, *((a + other, b + other) for a, b in request.edges))
    both = replace(request, stages=(*request.stages, *twins), edges=edges, loads=request.loads * 2, is_exclusive=True)
    result = place(both, name)
    assert result.skipped is None
    if result.evaluation is not None and name in ("hill_climbing", "hybrid", "ant_system"):
        assert not [v for v in result.evaluation.violations if v["kind"] == "exclusive"]
