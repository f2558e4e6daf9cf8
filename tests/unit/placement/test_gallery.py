"""The gallery: each problem can be made, and no strategy beats its bound; proven optima of small problems are proven again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agiledart.placement import Objective, PlacementOptions, joined_request, place
from agiledart.placement.gallery import GALLERY
from agiledart_cli.main import run_cli
from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.evaluation.terms import minimised


@pytest.mark.parametrize("name", GALLERY)
def test_no_heuristic_exceeds_the_bound(name: str) -> None:
    problem = GALLERY[name]
    try:
        network, topology = problem.make()
    except ConfigurationError as error:
        pytest.skip(str(error))
    request = joined_request(network, [topology])
    strategy = "mopa_probe" if len(network.hosts) > 50 else "hill_climbing"
    result = place(request, strategy, PlacementOptions(Objective(problem.objective)))
    assert result.evaluation is not None
    value = minimised(problem.objective, result.evaluation.value)
    assert problem.bound is not None
    assert value >= minimised(problem.objective, problem.bound) - 1e-6
    assert minimised(problem.objective, problem.value) >= minimised(problem.objective, problem.bound) - 1e-9


@pytest.mark.parametrize("name", ["example", "tag-and-count", "tag-and-count-available", "manufacturing"])
def test_proven_optima_are_proven_again(name: str) -> None:
    pytest.importorskip("highspy", reason='odp needs the extra: pip install "agiledart[placement]"')
    from agiledart_placement.integer_programme.odp import Odp

    problem = GALLERY[name]
    network, topology = problem.make()
    request = replace(joined_request(network, [topology]), objective=Objective(problem.objective))
    placement = Odp(breaks_ties=False).place(request)
    assert placement.search.status == "optimal"
    assert evaluate(request, placement.nodes).value == pytest.approx(problem.value, abs=1e-6)
    assert problem.value == problem.bound


def test_a_problem_is_written_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["place", "gallery", "tag-and-count"]) == 0
    assert run_cli(["place", "gallery", "tag-and-cuont"]) == 2
    assert "Did you mean tag-and-count" in capsys.readouterr().err
    assert run_cli(["place", "gallery", "-o", "json"]) == 0
    names = [entry["name"] for entry in json.loads(capsys.readouterr().out)]
    assert names == list(GALLERY)
    files = ["--network", "tag-and-count-network.json", "--topology", "tag-and-count-topology.json"]
    assert run_cli(["place", *files, "--strategy", "hill_climbing", "--objective", "response"]) == 0
