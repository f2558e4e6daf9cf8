"""`agiledart analytics` and the demo's Spark step, as far as they go without Spark."""

import json
from pathlib import Path

import pytest

from agiledart_cli.demo import demo_spark
from agiledart_cli.main import run_cli
from agiledart_cli.verbs.analytics import print_outcome


def test_the_list_of_jobs_needs_no_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["analytics", "list", "-o", "json"]) == 0
    jobs = json.loads(capsys.readouterr().out)
    assert "busiest-routes" in [job["name"] for job in jobs]
    assert run_cli(["analytics", "list"]) == 0
    assert "clean-trips" in capsys.readouterr().out


def test_an_unknown_job_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["analytics", "run", "weather"]) == 2
    assert "busiest-routes" in capsys.readouterr().err


def test_missing_parquet_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run_cli(["analytics", "run", "revenue", "--parquet", str(tmp_path / "none")]) == 2
    assert "not a folder" in capsys.readouterr().err


def test_cents_are_displayed_as_dollars(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcome(("area", "trips", "revenue_cents"), (("1.1", 2, 123456),))
    assert capsys.readouterr().out.splitlines() == [" AREA  TRIPS    REVENUE", " 1.1       2  $1,234.56"]


def test_a_demo_without_spark_gives_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    step = demo_spark.SparkStep()
    found = step.start(None, "taxi:", Path(), 1)  # type: ignore[arg-type]  # the mesh is not asked
    assert "pip install" in found["skipped"]
    assert "is skipped" in capsys.readouterr().err
    step.close()


def test_errors_of_spark_do_not_end_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    demo_spark.print_spark({})
    demo_spark.print_spark({"error": "it broke"})
    table = [["2013-01-01 00:00:00", 1, 5], ["2013-01-01 00:15:00", 1, 7]]
    demo_spark.print_spark(
        {
            "rows": 9,
            "batches": 2,
            "rows_per_second": 3,
            "job": "j",
            "columns": ["window_start", "rank", "trips"],
            "table": table,
        }
    )
    shown = capsys.readouterr()
    assert "it broke" in shown.err
    assert "00:15:00" in shown.out
    assert "00:00:00" not in shown.out
