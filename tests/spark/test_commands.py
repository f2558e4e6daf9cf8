"""Every ready-made job through the command as JSON, and those of days as tables, on the log of a real mesh."""

import json
from pathlib import Path
from typing import Any

import pytest

from agiledart_analytics.jobs import JOBS
from agiledart_cli.main import run_cli

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("spark")]


@pytest.mark.slow
@pytest.mark.usefixtures("same_session")
def test_each_job_prints_its_result(written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    agent = ("--agent", str(written.agent.state_dir))
    for job in JOBS.values():
        application = ["clean-trips"] if job.is_about_an_application else []
        assert run_cli(["analytics", "run", job.name, *application, *agent, "-o", "json"]) == 0, job.name
        shown = capsys.readouterr()
        result = json.loads(shown.out)
        assert result["total"] == len(result["rows"]) > 0, job.name
        assert result["rows"][0][job.measure] is not None, job.name
        assert "result after" in shown.err
        days = {row["day"] for row in result["rows"] if "day" in row}
        assert all(len(day) == len("2013-01-07") for day in days)
        if not days:
            continue
        assert run_cli(["analytics", "run", job.name, *agent]) == 0, job.name
        table = capsys.readouterr().out.splitlines()
        assert len(table) > 1
        assert any(day in line for line in table[1:] for day in days)


@pytest.mark.slow
@pytest.mark.usefixtures("same_session")
def test_a_result_is_written_as_parquet(written: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent = ("--agent", str(written.agent.state_dir))
    assert run_cli(["analytics", "run", "daily-routes", *agent, "--results", str(tmp_path)]) == 0
    assert "Parquet:" in capsys.readouterr().err
    assert list((tmp_path / "daily-routes").glob("*.parquet"))
