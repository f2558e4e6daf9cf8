"""`explain recovery`: the cost of a failure, for a file built here and for an agent's application."""

import json
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_cli.verbs import explain
from agiledart_node.wire.commands import ExplainRecovery

CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Sink, Source, Topology, Pane, sum_of, tumbling


class Row(NamedTuple):
    at: int
    key: int
    value: int


def build(
    rows: Source[Row], more: Source[Row], out: Sink[Pane], delivery: str = "exactly-once", lost: str = "wait", state: str = "wait"
) -> Topology:
    topology = Topology("sums", delivery=delivery, on_source_lost=lost, on_sink_lost=lost, on_state_lost=state)
    first = topology.source("rows", rows, event_time=lambda row: row.at)
    both = first.union(topology.source("more", more, event_time=lambda row: row.at), name="both")
    sums = both.key_by(lambda row: row.key).window(tumbling(timedelta(seconds=1))).aggregate("sums", sum_of(lambda row: row.value))
    sums.sink("out", out)
    return topology
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "costly.py").write_text(CODE)
    (tmp_path / "a.csv").write_text("1,1,1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def explained(capsys: pytest.CaptureFixture[str], *settings: str) -> dict[str, Any]:
    words = [word for setting in settings for word in ("--set", setting)]
    assert run_cli(["explain", "recovery", "costly.py:build", *words, "-o", "json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_a_file_is_explained_without_an_agent(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = explained(capsys, "rows=csv:a.csv", "more=tcp:pi2:7000", "out=log:sums")
    costs = {step["name"]: step["after_a_failure"] for step in told["steps"]}
    assert costs["rows"].startswith("read again from its position at the last checkpoint")
    assert costs["more"].startswith("rows after the last checkpoint are read again from its log on the node's disk")
    assert costs["sums"].startswith("its state by key is restored from the last checkpoint")
    assert "its rows wait" not in costs["sums"], "windows are saved in slices"
    assert costs["out"].startswith("readers see each row once, when its checkpoint is committed")
    assert not any(step["refused"] for step in told["steps"])
    assert any("clocks" in text for text in told["user_code_must_not"])


@pytest.mark.parametrize(
    ("setting", "name", "text"),
    [
        ("out=stdout:", "out", "cannot withdraw rows"),
        ("out=sql:plant?table=sums", "out", "key=… lets one that comes again change nothing"),
        ("out=mqtt://broker/sums?duplicates=1", "out", "nobody says whether they arrive: add qos=1"),
        ("more=tcp:pi2:7000?overload=shed_oldest", "more", "rows that are shed cannot be read again"),
        ("more=csv:a.csv?follow=1", "more", "a file that grows"),
    ],
)
def test_refusals_are_announced(
    folder: Path, capsys: pytest.CaptureFixture[str], setting: str, name: str, text: str
) -> None:
    usual = {"rows": "csv:a.csv", "more": "csv:a.csv", "out": "log:sums"} | dict([setting.split("=", 1)])
    told = explained(capsys, *(f"{key}={value}" for key, value in usual.items()))
    (step,) = (step for step in told["steps"] if step["name"] == name)
    assert step["refused"]
    assert text in step["after_a_failure"]


@pytest.mark.parametrize(
    ("sink", "text"),
    [
        ("sql:plant?table=sums&key=at", "idempotent"),
        ("mqtt://broker/sums?qos=1&duplicates=1", "none lost with exactly-once, may repeat"),
        ("csv:out.csv?roll_bytes=1000000", "a file gets its name when the checkpoint of its last row is committed"),
        ("parquet:out.parquet", "a file gets its name when the checkpoint of its last row is committed"),
    ],
)
def test_duplicates_are_announced(folder: Path, capsys: pytest.CaptureFixture[str], sink: str, text: str) -> None:
    told = explained(capsys, "rows=csv:a.csv", "more=csv:a.csv", f"out={sink}")
    (step,) = (step for step in told["steps"] if step["name"] == "out")
    assert not step["refused"]
    assert text in step["after_a_failure"]


@pytest.mark.parametrize(
    ("sink", "text"),
    [
        ("stdout:", "rows after the last checkpoint appear again; the sink does not confirm that rows arrive"),
        (
            "log:sums",
            "rows after the last checkpoint appear again, none is lost; without its node the application waits",
        ),
        (
            "csv:out.csv",
            "rows after the last checkpoint appear again, none is lost; without its node the application waits",
        ),
        ("mqtt://broker/sums?qos=1", "rows after the last checkpoint appear again, none is lost"),
        (
            "mqtt://broker/sums",
            "rows after the last checkpoint appear again; the sink does not confirm that rows arrive: add qos=1",
        ),
        ("sql:plant?table=sums", "rows after the last checkpoint appear again, none is lost"),
        ("sql:plant?table=sums&key=at", "idempotent"),
        ("csv:out.csv?roll_bytes=1000000", "a file gets its name when the checkpoint of its last row is committed"),
    ],
)
def test_at_least_once_lists_duplicates_and_refuses_no_sink(
    folder: Path, capsys: pytest.CaptureFixture[str], sink: str, text: str
) -> None:
    told = explained(capsys, "rows=csv:a.csv", "more=csv:a.csv", f"out={sink}", "delivery=at-least-once")
    (step,) = (step for step in told["steps"] if step["name"] == "out")
    assert (step["refused"], told["delivery"]) == (False, "at-least-once")
    assert text in step["after_a_failure"]
    assert len(told["user_code_must_not"]) == 2


def test_a_movable_log_saves_epochs_with_at_least_once_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("rows=csv:a.csv", "more=csv:a.csv", "out=log:sums", "delivery=at-least-once", "lost=move")
    assert explained(capsys, *words)["steps"][-1]["after_a_failure"].startswith(
        "readers see each row once, when its checkpoint"
    )


def test_at_most_once_reports_that_nothing_is_saved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--set",
        "rows=csv:a.csv",
        "--set",
        "more=csv:a.csv",
        "--set",
        "out=stdout:",
        "--set",
        "delivery=at-most-once",
    ]
    assert run_cli(["explain", "recovery", "costly.py:build", *words]) == 0
    told = capsys.readouterr().out
    assert "sums: nothing is saved: the application fails when a host dies" in told
    assert "refused" not in told
    assert "must not" not in told


class Client:
    """An agent that has one answer."""

    asked: Any = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, command: ExplainRecovery) -> dict[str, Any]:
        """Keeps the question."""
        Client.asked = command
        step = {"name": "rows", "role": "source", "kind": "csv", "connector": "csv:/data/a.csv", "has_log": False,
                "sheds": False, "has_state": False, "keyed": False, "nodes": ["pi3"]}  # fmt: skip
        return {
            "name": "job",
            "version": 1,
            "state": "running",
            "delivery": "exactly-once",
            "merges": False,
            "steps": [step],
        }


def test_the_nodes_of_an_application_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain, "connect", lambda agent, identity: Client())
    assert run_cli(["explain", "recovery", "job"]) == 0
    assert Client.asked == ExplainRecovery("job")
    told = capsys.readouterr().out
    assert "job: each row takes effect once, also after a failure" in told
    assert "without pi3 the application waits" in told
    assert run_cli(["explain", "recovery", "job", "--set", "rows=csv:b.csv"]) == 2
    assert "--set applies to FILE:NAME" in capsys.readouterr().err


def test_lost_node_policies_are_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = ("rows=csv:a.csv", "more=tcp:pi2:7000", "lost=move", "state=empty")
    costs = {step["name"]: step for step in explained(capsys, *settings, "out=log:sums")["steps"]}
    assert costs["rows"]["after_a_failure"].endswith("without its node another node takes it over")
    assert costs["more"]["after_a_failure"].endswith("are lost then")
    assert costs["sums"]["after_a_failure"].endswith(
        "the step starts empty if the state cannot be rebuilt for a minute"
    )
    assert (costs["out"]["if_lost"], costs["out"]["refused"], costs["both"]["if_lost"]) == ("move", False, "wait")
    assert explained(capsys, *settings, "out=csv:out.csv")["steps"][-1]["refused"]
    goes_back = {
        step["name"]: step for step in explained(capsys, *settings[:3], "state=previous", "out=log:sums")["steps"]
    }
    assert goes_back["sums"]["after_a_failure"].endswith("and some rows are duplicated")
    assert "come twice" not in goes_back["both"]["after_a_failure"], "it has no state of its own to lose"


def test_an_unknown_or_unusable_policy_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "recovery", "costly.py:build", "--set", "rows=csv:a.csv", "--set", "more=csv:a.csv"]
    words += ["--set", "out=log:sums", "--set"]
    assert run_cli([*words, "lost=run"]) == 2
    assert "on_source_lost is 'wait' or 'move' or 'fail', not 'run'" in capsys.readouterr().err
    assert run_cli([*words, "lost=move", "--set", "delivery=at-most-once"]) == 2
    assert 'needs delivery="survive"' in capsys.readouterr().err
