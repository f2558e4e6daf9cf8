"""Files of SQL and YAML on the command line: init, run, explain plan, schema."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agiledart_cli.main import run_cli

pytest.importorskip("sqlglot", reason="no sqlglot here: pip install 'agiledart[query]'")
pytest.importorskip("yaml", reason="no PyYAML here: pip install 'agiledart[query]'")

MINUTES = [["attic", "21", "2"], ["cellar", "12", "1"], ["attic", "24", "1"]]


@pytest.mark.parametrize("language", ["python", "sql", "yaml"])
def test_init_makes_an_application_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], language: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["init", "rooms", "--language", language]) == 0
    target = "rooms.py:rooms" if language == "python" else f"rooms.{language}"
    assert f"agiledart run {target}" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "rooms")
    assert run_cli(["run", target]) == 0
    rows = [line.split(",") for line in (tmp_path / "rooms" / "minutes.csv").read_text().splitlines()]
    assert [[row[0], *row[3:]] for row in rows] == MINUTES
    assert run_cli(["init", str(tmp_path / "rooms")]) != 0
    assert "exists already" in capsys.readouterr().err


def test_the_test_that_init_makes_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["init", "rooms", "--language", "yaml"]) == 0
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rooms.py"]
    done = subprocess.run(words, cwd=tmp_path / "rooms", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_a_bad_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_cli(["init", "My rooms"]) != 0
    assert "cannot name a module" in capsys.readouterr().err


def test_the_plan_shows_stages_state_and_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_cli(["init", "rooms", "--language", "sql"])
    monkeypatch.chdir(tmp_path / "rooms")
    capsys.readouterr()
    assert run_cli(["explain", "plan", "rooms.sql", "--parallelism", "2", "-o", "json"]) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert [stage["kind"] for stage in stages] == ["source", "operator", "operator", "sink"]
    window = stages[2]
    assert (window["parallelism"], window["has_state"], window["inputs"][0]["partitioning"]) == (2, True, "key")
    assert window["cost_us"] > stages[1]["cost_us"] > 0
    assert run_cli(["explain", "plan", "rooms.sql", "--code"]) == 0
    shown = capsys.readouterr().out
    assert "tumbling(timedelta(seconds=60))" in shown
    assert "restored from the last checkpoint" in shown
    assert run_cli(["explain", "recovery", "rooms.sql", "-o", "json"]) == 0


def test_a_mistake_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rooms.yaml").write_text(
        "sources:\n  r: {from: 'null:', columns: {a: int}}\nsteps:\n  - where: a > 'x'\nsinks: {}\n"
    )
    assert run_cli(["run", "rooms.yaml"]) != 0
    error = capsys.readouterr().err
    assert error.strip() == "rooms.yaml:4:12: INT and TEXT cannot be compared: a > 'x'"


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "AgileDART application"
