"""The page of fidelity: states of panels, curves, and the origin of each value beside them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_experiments.fidelity.fidelity_report import COMPUTED, MISSING, PARTLY, REAL, Curve, fidelity_of
from agiledart_experiments.fidelity.line_chart import line_chart
from agiledart_experiments.fidelity.panel import ARITHMETIC, Panel
from agiledart_experiments.fidelity.panels import AGILEDART, PANELS
from agiledart_experiments.registry import EXPERIMENTS
from agiledart_kernel.errors import ConfigurationError

PANEL = Panel("1", "regret", "path-regret", "nodes", ("regret_mean",), ("policy",), {"nodes": (25, 36)}, ARITHMETIC)


def stored(folder: Path, name: str = "path-regret", **changes: Any) -> None:
    rows = [
        {
            "nodes": n,
            "policy": "kl",
            "regret_mean": 10.0 * n,
            "regret_mean_other_run": 11.0 * n,
            "regret_mean_published": p,
        }
        for n, p in ((25, 7), (36, None), (64, 9))
    ]
    document = {"experiment": name, "scale": "paper", "command": "c", "seed": 1, "results": rows, "goals": []}
    (folder / f"{changes.pop('file', name)}.json").write_text(json.dumps(document | changes))


def test_agiledart_has_36_panels_and_each_experiment_exists() -> None:
    assert len(AGILEDART) == 36
    assert len({panel.name for panel in AGILEDART}) == 36
    for panel in PANELS:
        assert bool(panel.experiment) == bool(panel.evidence) == bool(panel.y), panel.name
        name = panel.experiment.removesuffix(REAL)
        assert name in EXPERIMENTS or (not panel.experiment and panel.lacks), panel.name
        assert panel.also in ("", name)
        assert not panel.experiment.endswith(REAL) or EXPERIMENTS[name].has_real


def test_a_panel_has_its_curves_and_the_origins_of_the_values_beside(tmp_path: Path) -> None:
    stored(tmp_path)
    (entry,) = fidelity_of([str(tmp_path)], [PANEL]).panels
    assert (entry.state, entry.why) == (COMPUTED, "")
    assert entry.curves == (
        Curve("regret_mean, kl", ((25, 250.0), (36, 360.0))),
        Curve("regret_mean, kl", ((25, 7),), "printed"),
        Curve("regret_mean, kl", ((25, 275.0), (36, 396.0)), "other run"),
    )


@pytest.mark.parametrize(
    ("changes", "state", "why"),
    [
        ({"scale": "small"}, PARTLY, "small scale"),
        ({"results": [{"nodes": 25, "policy": "kl", "regret": 1}]}, MISSING, "has no regret_mean"),
        ({"experiment": "hop-count"}, MISSING, "agiledart experiment run path-regret --scale paper"),
    ],
)
def test_a_state_has_its_reason(tmp_path: Path, changes: dict[str, Any], state: str, why: str) -> None:
    stored(tmp_path, **changes)
    (entry,) = fidelity_of([str(tmp_path)], [PANEL]).panels
    assert entry.state == state
    assert why in entry.why


def test_the_published_scale_counts_before_others_and_files_of_other_tools_are_left(tmp_path: Path) -> None:
    stored(tmp_path, file="a", scale="small")
    stored(tmp_path, file="b")
    (tmp_path / "engines.json").write_text('{"about": {}}')
    report = fidelity_of([str(tmp_path)], [PANEL])
    assert report.panels[0].source.endswith("b.json")
    assert [Path(file).name for file in report.unread] == ["engines.json"]


def test_parts_of_a_long_run_add_the_lines_that_others_do_not_have(tmp_path: Path) -> None:
    stored(tmp_path)
    more = [{"nodes": 25, "policy": policy, "regret_mean": value} for policy, value in (("kl", 1.0), ("next", 20.0))]
    stored(tmp_path, file="path-regret-next", command="d", results=more)
    stored(tmp_path, file="path-regret-small", scale="small", results=[{**more[0], "policy": "end"}])
    (entry,) = fidelity_of([str(tmp_path)], [PANEL]).panels
    assert [(c.label, c.points) for c in entry.curves if c.origin == "here"] == [
        ("regret_mean, kl", ((25, 250.0), (36, 360.0))),
        ("regret_mean, next", ((25, 20.0),)),
    ]
    assert entry.run is not None
    assert [entry.run["command"], *(part["command"] for part in entry.run["parts"])] == ["c", "d"]


def test_a_panel_takes_a_result_that_has_its_rows(tmp_path: Path) -> None:
    stored(tmp_path, results=[{"nodes": 64, "policy": "kl", "regret_mean": 1.0}])
    stored(tmp_path, file="path-regret-25", scale="small", results=[{"nodes": 25, "policy": "kl", "regret_mean": 2.0}])
    (entry,) = fidelity_of([str(tmp_path)], [PANEL]).panels
    assert (entry.state, entry.why) == (PARTLY, "small scale")
    assert entry.curves[0].points == ((25, 2.0),)


def test_a_panel_without_a_compared_engine_is_computed_partly(tmp_path: Path) -> None:
    stored(tmp_path)
    (entry,) = fidelity_of([str(tmp_path)], [replace(PANEL, needs={"policy": ("kl", "next")})]).panels
    assert (entry.state, entry.why) == (PARTLY, "no row has policy next")


def test_results_of_agents_count_and_those_of_the_simulator_stand_beside(tmp_path: Path) -> None:
    panel = Panel("8a", "", f"path-regret{REAL}", "nodes", ("regret_mean",), evidence=ARITHMETIC, also="path-regret")
    stored(tmp_path)
    (entry,) = fidelity_of([str(tmp_path)], [panel]).panels
    assert entry.state == PARTLY
    assert "path-regret --real --scale paper" in entry.why
    stored(tmp_path, file="path-regret-real", real=True, results=[{"nodes": 25, "regret_mean": 5.0}])
    (entry,) = fidelity_of([str(tmp_path)], [panel]).panels
    assert entry.state == COMPUTED
    assert [(c.origin, c.points[0]) for c in entry.curves] == [("here", (25, 5.0)), ("simulator", (25, 250.0))]


def test_a_panel_on_other_inputs_is_computed_with_its_difference(tmp_path: Path) -> None:
    stored(tmp_path)
    (entry,) = fidelity_of([str(tmp_path)], [replace(PANEL, differs="drawn delays")]).panels
    assert (entry.state, entry.why) == (COMPUTED, "drawn delays")


def test_lists_in_rows_are_curves(tmp_path: Path) -> None:
    rows = [{"policy": "kl", "by_rank": [0.5, 0.25], "course": [[50, 3.0], [100, 1.5]]}]
    stored(tmp_path, results=rows)
    panel = Panel("15", "", "path-regret", "rank", ("by_rank", "course"), ("policy",), {}, ARITHMETIC)
    curves = fidelity_of([str(tmp_path)], [panel]).panels[0].curves
    assert [curve.points for curve in curves] == [((1, 0.5), (2, 0.25)), ((50, 3.0), (100, 1.5))]


def test_a_panel_may_show_running_sums_of_means(tmp_path: Path) -> None:
    stored(tmp_path, results=[{"policy": "kl", "course": [[50, 3.0], [100, 1.5]]}])
    panel = Panel("17a", "", "path-regret", "packets", ("course",), ("policy",), {}, ARITHMETIC, sums_of=50)
    (curve,) = fidelity_of([str(tmp_path)], [panel]).panels[0].curves
    assert curve.points == ((50, 150.0), (100, 225.0))


def test_a_chart_draws_lines_words_and_maps() -> None:
    lines = line_chart([Curve("a", ((1, 2.0), (3, 4.0))), Curve("a", ((1, 1.0),), "printed")], "x <n>")
    assert lines.count("<polyline") == 2
    assert lines.count("stroke-dasharray") == 1
    assert "x &lt;n&gt;" in lines
    assert ">paper<" in line_chart([Curve("a", (("paper", 2.0), ("next-hop", 4.0)))], "policy")
    streets: Any = Curve("map", (((151.0, -33.9), (151.1, -33.8)),))
    assert "<path" in line_chart([streets], "longitude")
    assert line_chart([], "x") == ""


def test_the_command_prints_a_table_json_and_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path)
    assert run_cli(["experiment", "report", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "17b" in captured.out
    assert "1 of 36 panels of AgileDART computed" in captured.err
    assert run_cli(["experiment", "report", str(tmp_path), "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    counts = {"panels": 36, "computed": 1, "partly": 0, "missing": 35, "computed_on_other_inputs": 0}
    assert document["counts"] == counts
    assert run_cli(["experiment", "report", str(tmp_path), "-o", "html"]) == 0
    page = capsys.readouterr().out
    assert page.startswith("<!doctype html>")
    assert "http" not in page.replace("http-equiv", ""), "the page needs no other file"
    assert run_cli(["experiment", "report", str(tmp_path / "none")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_a_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"broken\.json: it is not JSON"):
        fidelity_of([str(tmp_path)], [PANEL])
