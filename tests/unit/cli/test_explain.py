"""How `explain scaling` looks."""

from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_cli.verbs import explain
from agiledart_node.wire.commands import ExplainScaling

MEASURES = {"offered": 300.4, "backlog": 3000, "true_rate": 100.0, "capacity": 200.0, "busy": 0.5, "blocked": 0.0,
            "selectivity": 1.0}  # fmt: skip
NOTHING = dict.fromkeys(MEASURES)


def stage(name: str, **fields: Any) -> dict[str, Any]:
    """A row of the answer."""
    usual = {"name": name, "kind": "operator", "instances": 1, "limits": [1, 1], "scales": False, "measures": NOTHING,
             "f": None, "needed": None, "wanted": None, "why": "", "void": ""}  # fmt: skip
    return usual | fields


class Client:
    """An agent that has one answer."""

    asked: Any = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, command: ExplainScaling) -> dict[str, Any]:
        """Keeps the question."""
        Client.asked = command
        rows = [
            stage("rows", kind="source", why="it runs once"),
            stage("work", instances=2, limits=[1, 8], scales=True, measures=MEASURES, f=0.1778, needed=9, wanted=8,
                  why="proportional: f 0.18"),
            stage("best", void="what is asked of work is not known"),
        ]  # fmt: skip
        return {"name": "job", "version": 1, "state": "running", "policy": "secant", "stages": rows, "changes": [],
                "silent_nodes": ["a3"]}  # fmt: skip


def test_a_line_for_each_stage_and_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain, "connect", lambda agent, identity: Client())
    assert run_cli(["explain", "scaling", "job", "work"]) == 0
    assert Client.asked == ExplainScaling("job", "work")
    told = capsys.readouterr().out
    line = next(line for line in told.splitlines() if line.startswith(" work"))
    assert line.split() == ["work", "2", "1..8", "300", "3,000", "200", "50%", "0%", "0.18", "9"]
    assert " work: proportional: f 0.18\n" in told
    assert " best: what is asked of work is not known\n" in told
    assert " no figures from a3\n" in told


def test_what_agents_say_cannot_steer_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain, "connect", lambda agent, identity: Client())
    monkeypatch.setattr(Client, "ask", lambda *_: {"stages": [stage("a\x1b[2J", why="b\x07")], "silent_nodes": []})
    assert run_cli(["explain", "scaling", "job"]) == 0
    assert not {"\x1b", "\x07"} & set(capsys.readouterr().out)
