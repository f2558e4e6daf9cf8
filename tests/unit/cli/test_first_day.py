"""Output of the command line on a user's first day: Ctrl-C, no capacity, replacing, forgetting, logs without a line."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.output import print_message
from agiledart_cli.verbs import application_view
from agiledart_control import control_client
from agiledart_control.agent_place import MESH_FILE, find_agent
from agiledart_node.wire.commands import WAITING_FOR_CAPACITY, Forget, Status, Stop, Submit
from agiledart_node.wire.control_messages import ControlRefusal
from tests.unit.cli.fake_agent import FakeAgent
from tests.unit.cli.test_verbs import Ask, ask, project

__all__ = ["ask", "project"]

SUBMIT = ["submit", "small.py:build", "--set", "rows=csv:rows.csv@a1"]
STARTED = {"name": "small", "version": 2, "state": "running", "placement": {"rows": ["a1"]}, "seconds_to_running": 0.4}
STOPPED = {"name": "small", "version": 1, "state": "stopped", "summary": {}}


def test_ctrl_c_during_a_start_reports_that_it_continues(
    project: Path, ask: Ask, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(connection: object, timeout: float) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(control_client.UnixConnection, "receive", interrupted)
    assert ask(SUBMIT, ["placing", STARTED])[0] == 130
    told = capsys.readouterr().err
    assert "small is still being started." in told
    assert "agiledart stop small" in told
    assert "Traceback" not in told


def test_missing_capacity_is_reported_at_once_with_a_fix(
    project: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"small {WAITING_FOR_CAPACITY}: no node has room. Start more agents. It starts by itself when there is room."
    began = time.monotonic()
    assert ask(SUBMIT, [line])[0] == 1  # no answer comes: no caller waits for one
    assert time.monotonic() - began < control_client.ANSWER_SECONDS
    assert line in capsys.readouterr().err
    assert ask([*SUBMIT, "--wait"], [line, STARTED], [{**STARTED, "state": "finished"}])[0] == 0


def test_replace_drains_the_running_application_and_starts_again(
    project: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    running = {"name": "small", "version": 1, "state": "running"}
    code, asked = ask([*SUBMIT, "--replace"], [running], [{"checks": []}], ["draining", STOPPED], [STARTED])
    assert code == 0
    assert [type(command) for command in asked] == [Status, Submit, Stop, Submit]
    assert [command.dry_run for command in asked if isinstance(command, Submit)] == [True, False]
    assert asked[2] == Stop("small", now=False)
    assert "small is running: draining it first" in capsys.readouterr().err


CODE = {"stage": "", "node": "a2", "connector": "", "is_good": False, "text": "No module named 'only_here'"}


@pytest.mark.parametrize(
    ("looked", "code", "words"),
    [
        (
            ControlRefusal(2, "rows: no node, zone or host is called 'a9'. Nodes: a1", 2),
            2,
            "called 'a9'. Nodes: a1. small keeps running",
        ),
        (
            ControlRefusal(2, "The log routes belongs to the key 12ab…, not to you: you may not write it", 1, "owner"),
            1,
            "not write it. small keeps running unchanged.",
        ),
        ({"checks": [CODE]}, 1, "a2: No module named 'only_here'. small keeps running unchanged."),
    ],
)
def test_replace_by_an_invalid_application_ends_nothing(
    looked: Any, code: int, words: str, project: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    given, asked = ask([*SUBMIT, "--replace"], [{"name": "small", "state": "running"}], [looked])
    assert given == code
    assert not [command for command in asked if isinstance(command, Stop)]
    assert words in capsys.readouterr().err


def test_wait_for_an_application_with_unreadable_input_fails(
    project: Path, ask: Ask, capsys: pytest.CaptureFixture[str]
) -> None:
    for read, malformed, code in ((3, {"form": 3}, 1), (3, {"form": 2}, 0), (0, {}, 0)):
        final = {**STARTED, "state": "finished", "summary": {"records_in": read, "malformed": malformed}}
        assert ask([*SUBMIT, "--wait"], [STARTED], [final])[0] == code
        assert ("agiledart logs small" in capsys.readouterr().err) == (code == 1)


@pytest.mark.parametrize("before", [ControlRefusal(1, "No application 'small'."), {"name": "small", "state": "failed"}])
def test_replace_without_a_running_application_is_a_submission(before: Any, project: Path, ask: Ask) -> None:
    code, asked = ask([*SUBMIT, "--replace"], [before], [STARTED])
    assert (code, [type(command) for command in asked]) == (0, [Status, Submit])


def test_forget_removes_the_application(ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    code, asked = ask(["forget", "small"], [{"name": "small", "version": 3}])
    assert (code, asked) == (0, [Forget("small")])
    assert "small v3 is forgotten." in capsys.readouterr().err


@pytest.mark.parametrize(("state", "said"), [("running", "nothing yet."), ("finished", "logged nothing.")])
def test_empty_logs_are_reported(state: str, said: str, ask: Ask, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(["logs", "small"], [{"lines": [], "after": {}, "state": state, "silent_nodes": []}])[0] == 0
    assert said in capsys.readouterr().err


def test_list_displays_duration_and_end_time(capsys: pytest.CaptureFixture[str]) -> None:
    now = int(time.time() * 1000)
    row = {"version": 1, "submitted_to": "a1", "submitted_ms": now - 9_000_000}
    application_view.print_applications(
        {
            "applications": [
                {
                    **row,
                    "name": "done",
                    "state": "finished",
                    "running_ms": now - 8_000_000,
                    "changed_ms": now - 800_000,
                },
                {**row, "name": "goes", "state": "running", "running_ms": now - 65_000, "changed_ms": now - 65_000},
                {**row, "name": "never", "state": "failed", "running_ms": 0, "changed_ms": now - 3_600_000},
            ]
        }
    )
    done, goes, never = capsys.readouterr().out.splitlines()[1:]
    assert "ran for 2 h 0 min, ended 13 min 20 s ago" in done
    assert "for 1 min 5 s" in goes
    assert "ended" not in goes
    assert "ended 1 h 0 min ago" in never


def test_a_long_reason_is_cut_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    row = {"name": "x", "version": 1, "state": "failed", "reason": "why " * 80, "changed_ms": 0, "submitted_to": "a1"}
    application_view.print_applications({"applications": [row]})
    assert len(capsys.readouterr().out.splitlines()[1]) > 300
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    application_view.print_applications({"applications": [row]})
    line = capsys.readouterr().out.splitlines()[1]
    assert len(line) <= 110  # with the codes of its colour
    assert line.endswith("…")


def test_status_displays_the_age_of_figures_and_the_placement_reason(capsys: pytest.CaptureFixture[str]) -> None:
    body: dict[str, Any] = {
        "name": "small", "version": 1, "state": "running", "changed_ms": 0, "placement": {"rows": ["a1"], "count": ["a2"]},
        "data_paths": [["a1", "a2", "a1"]], "paths": [["a1"]],
        "reasons": {"count": "a1 has 5 of other applications: from 2 instances on, nodes with fewer are taken first"},
        "stages": [{"name": "rows", "instances": [{"age_ms": 100}]}, {"name": "count", "instances": [{"age_ms": 2_300}]}],
    }  # fmt: skip
    application_view.print_status(body)
    told = capsys.readouterr().out
    assert "path a1 → a2 → a1 (2 hops)" in told
    assert (
        "count runs on a2: a1 has 5 of other applications: from 2 instances on, nodes with fewer are taken first"
        in told
    )
    assert "figures 0.10 s to 2.30 s old: counts differ by the rows that passed in between" in told


def test_a_guessed_agent_is_named_once_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, agent = tmp_path / "state" / "agiledart", tmp_path / "a1"
    state.mkdir(parents=True)
    agent.mkdir()
    (state / MESH_FILE).write_text(json.dumps({"pid": os.getpid(), "agents": [str(agent)]}))
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with FakeAgent(agent, lambda _: []):
        for said in (1, 0):
            find_agent(None, environment, notify=print_message)
            assert capsys.readouterr().err.count("no --agent given: using a1") == said
        monkeypatch.setattr(os, "getsid", lambda _: 4_711)  # another terminal
        find_agent(None, environment, notify=print_message)
        assert "no --agent given" in capsys.readouterr().err
