"""Metrics of a pipeline, and the alerts and the board that speak of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from agiledart_pipelines.log_lag import LogLag, read_offsets
from agiledart_pipelines.pipeline_metrics import COUNTERS, GAUGES, PipelineMetrics
from agiledart_pipelines.project import PipelineProject
from tests.unit.agent.promtool import lint

pytest.importorskip("pyspark", reason="pyspark is not installed (extra [spark])")

from agiledart_pipelines.runner import PipelineUpdate

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy" / "prometheus" / "agiledart-pipelines.rules.yml"
BOARD = ROOT / "deploy" / "grafana" / "dashboards" / "agiledart-pipelines.json"
NAMES = {
    f"agiledart_pipeline_{name}{'_total' if name in COUNTERS else ''}": labels
    for name, (_, labels) in (COUNTERS | GAUGES).items()
}


class Runner:
    """A runner after an update."""

    class Progress:
        def figures(self) -> dict[str, dict[str, float]]:
            return {"rows": {"bronze": 7}, "late": {"bronze": 1}, "seconds": {"bronze": 0.5}}

    progress = Progress()
    last_update: PipelineUpdate | None = None


def exposed(runner: Any) -> str:
    registry = CollectorRegistry()
    registry.register(PipelineMetrics(runner))
    return generate_latest(registry).decode()


def test_figures_of_an_update_are_exposed() -> None:
    runner = Runner()
    assert 'agiledart_pipeline_rows_total{table="bronze"} 7.0' in exposed(runner)
    runner.last_update = PipelineUpdate(
        1_700_000_000.0,
        2.5,
        {},
        {"quarantine": {"plausible": 3}},
        {"york/0": 5},
        {"york/0": LogLag(4, 9.0, 0.25)},
        {"porto": 5.0},
    )
    text = exposed(runner)
    for line in (
        'agiledart_pipeline_lag_rows{log="york/0"} 4.0',
        'agiledart_pipeline_lag_seconds{log="york/0"} 9.0',
        'agiledart_pipeline_unread_ratio{log="york/0"} 0.25',
        'agiledart_pipeline_quarantined_rows{reason="plausible",table="quarantine"} 3.0',
        'agiledart_pipeline_log_missing_since_timestamp_seconds{log="porto"} 5.0',
        "agiledart_pipeline_update_seconds 2.5",
    ):
        assert line in text


def test_alerts_and_board_name_metrics_that_exist() -> None:
    board = json.loads(BOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions += re.findall(r"expr: (.*)", RULES.read_text())
    assert len(expressions) == 13
    for expression in expressions:
        for name in re.findall(r"agiledart_pipeline_\w+", expression):
            assert name in NAMES, name
    for legend in re.findall(r"{{(\w+)}}", BOARD.read_text()):
        assert legend == "instance" or any(legend in labels for labels in NAMES.values()), legend
    lint("check", "rules", str(RULES))


def test_offsets_are_those_of_the_last_complete_micro_batch(tmp_path: Path) -> None:
    project = PipelineProject(tmp_path, tmp_path / "spark-pipeline.yml", "taxi", "default", {})
    place = project.state / "storage" / "_checkpoints" / "spark_catalog" / "default" / "bronze" / "bronze"
    for version, ends in ((0, (900,)), (1, (5, 9, 12))):
        for number, end in enumerate(ends):
            for name in ("offsets", "commits"):
                (place / str(version) / name).mkdir(parents=True, exist_ok=True)
            text = f'v1\n{{"batchWatermarkMs":0}}\n{{"york/0":{end},"york/1":{end + 1}}}'
            (place / str(version) / "offsets" / str(number)).write_text(text)
            if number < 2:  # the third is planned, not complete
                (place / str(version) / "commits" / str(number)).write_text("v1\n{}")
    silver = place.parent.parent / "silver" / "silver" / "0"
    (silver / "offsets").mkdir(parents=True)
    (silver / "commits").mkdir()
    (silver / "offsets" / "0").write_text('v1\n{}\n{"logOffset":0}')
    (silver / "commits" / "0").write_text("v1\n{}")
    assert read_offsets(project) == {"york/0": 9, "york/1": 10}
