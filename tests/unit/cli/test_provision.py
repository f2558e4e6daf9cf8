"""`agiledart provision`: examples run, figures are printed, mistakes are named."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from agiledart_cli.verbs.provisioning.provision_verbs import provision
from agiledart_kernel.errors import ConfigurationError, OperationFailed


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(provision, ["plan", "--example", "state.json"]).exit_code == 0
    plan = runner.invoke(provision, ["plan", "state.json"])
    assert "start parse on h2" in plan.stdout
    assert "release h1" in plan.stdout
    runner.invoke(provision, ["replay", "--example", "load.csv", "--types", "types.json"])
    Path("load.csv").write_text("second,type,rows_per_s\n0,parse,400\n600,parse,10\n1200,report,1\n")
    answer = runner.invoke(
        provision,
        [
            "replay",
            "load.csv",
            "--types",
            "types.json",
            "--btu",
            "10m",
            "--timeline",
            "t.csv",
            "--price",
            "6",
            "-o",
            "json",
        ],
    )
    runs = json.loads(answer.stdout)["runs"]
    assert [entry["policy"] for entry in runs] == ["hosts", "btu", "threshold"]
    assert all(entry["resource_cost"] >= 1.0 for entry in runs)
    assert Path("t.csv").read_text().startswith("policy,btu_s,minute,hosts,instances\nhosts,600,0,1,")
    by_second = runner.invoke(
        provision,
        ["replay", "load.csv", "--types", "types.json", "--policy", "hosts", "--billing", "second:60", "-o", "json"],
    )
    assert json.loads(by_second.stdout)["runs"][0]["btu_s"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ["plan", "none.json"],
            ConfigurationError,
            "none.json cannot be read: No such file or directory. --example writes one",
        ),
        (["plan", "bad.json"], ConfigurationError, "bad.json: it is not JSON"),
        (["plan", "--example", "bad.json"], OperationFailed, "bad.json cannot be written: File exists"),
        (
            ["replay", "l.csv", "--types", "types.json", "--btu", "10"],
            ConfigurationError,
            "--btu 10: use a time with its unit",
        ),
        (
            ["replay", "l.csv", "--types", "types.json", "--billing", "day"],
            ConfigurationError,
            "--billing day: use hour",
        ),
        (["replay", "l.csv", "--types", "types.json", "--policy", "bto"], ConfigurationError, "Did you mean btu?"),
    ],
)
def test_a_mistake_is_named(
    arguments: list[str], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{")
    CliRunner().invoke(provision, ["replay", "--example", "l.csv", "--types", "types.json"])
    answer = CliRunner().invoke(provision, arguments)
    assert isinstance(answer.exception, error)
    assert message in str(answer.exception)
