"""How `explain scaling` and `explain route` look."""

from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_cli.verbs import explain
from agiledart_cli.verbs.explain import print_scaling
from agiledart_node.wire.commands import ExplainScaling

MEASURES = {"offered": 300.4, "backlog": 3000, "true_rate": 100.0, "capacity": 200.0, "busy": 0.5, "blocked": 0.0,
            "selectivity": 1.0}  # fmt: skip
NOTHING = dict.fromkeys(MEASURES)


def stage(name: str, **fields: Any) -> dict[str, Any]:
    """A row of the answer."""
    usual = {"name": name, "kind": "operator", "instances": 1, "limits": [1, 1], "scales": False, "measures": NOTHING,
             "health_score": None, "needed": None, "wanted": None, "why": "", "unknown_reason": ""}  # fmt: skip
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
            stage("work", instances=2, limits=[1, 8], scales=True, measures=MEASURES, health_score=0.1778, needed=9, wanted=8,
                  why="proportional: f 0.18"),
            stage("best", unknown_reason="what is asked of work is not known"),
        ]  # fmt: skip
        return {"name": "job", "version": 1, "state": "running", "policy": "secant", "stages": rows, "changes": [],
                "silent_nodes": ["a3"]}  # fmt: skip


def test_each_stage_has_a_line_and_its_reason(
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


def test_text_from_agents_cannot_control_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(explain, "connect", lambda agent, identity: Client())
    monkeypatch.setattr(Client, "ask", lambda *_: {"stages": [stage("a\x1b[2J", why="b\x07")], "silent_nodes": []})
    assert run_cli(["explain", "scaling", "job"]) == 0
    assert not {"\x1b", "\x07"} & set(capsys.readouterr().out)


def test_changes_are_described_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change = {
        "stage": "areas", "generation": 2, "from": 2, "to": 3, "kind": "scale", "reason": "ann", "state": "done", "why": "",
        "moved_groups": 21, "moved_bytes": 2_100, "seconds": 1.24, "pause_ms": 80.0,
    }  # fmt: skip
    lost = {**change, "state": "rolled-back", "why": "pi2 was lost", "pause_ms": None}
    body = {"stages": [], "changes": [change, lost, {**change, "state": "running"}], "silent_nodes": []}
    print_scaling(body)
    told = capsys.readouterr().out
    assert "areas 2 → 3, scale by ann: done in 1.2 s, 21 key groups to other nodes, no rows for 80 ms" in told
    assert "rolled back: pi2 was lost" in told
    assert "by ann: in progress" in told
    print_scaling({**body, "changes": [{**change, "reason": "asked by ann"}, {**change, "reason": ""}]})
    told = capsys.readouterr().out
    assert "areas 2 → 3, scale asked by ann: done in 1.2 s" in told
    assert "areas 2 → 3, scale: done in 1.2 s" in told
    print_scaling({**body, "name": "taxi", "state": "finished"})
    told = capsys.readouterr().out
    assert told.startswith(
        "taxi is finished: only running applications are measured. Its changes while it ran:\n areas 2 → 3"
    ), told


def way(**fields: Any) -> dict[str, Any]:
    """Of an instance, in what `status` says."""
    circuits = [
        {"relay": "a2", "in_use": True, "cost_ms": 24.0, "round_trip_ms": 22.0, "success": 0.21, "answers": 50,
         "bytes_per_second": 20_000, "late": False},
        {"relay": "a3", "in_use": False, "cost_ms": 2.5e9, "round_trip_ms": 30.0, "success": 0.1, "answers": 9,
         "bytes_per_second": 0, "late": False},
    ]  # fmt: skip
    usual = {
        "edge": 0,
        "target": 0,
        "to": "pi3",
        "paths": "auto",
        "relay": "a2",
        "since_ms": 0,
        "state": "works",
        "circuits": circuits,
        "changes": [{"at_ms": 0, "from": "", "to": "a2", "reason": "slow"}],
        "moves": {},
        "frames": {},
    }
    return usual | fields  # fmt: skip


def routes(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """An agent that reports one path."""
    stages = [
        {"name": "trips+keep", "instances": [{"index": 0, "node": "pi1", "routes": [way(**fields)]}]},
        {"name": "best", "instances": [{"index": 0, "node": "pi3"}]},
    ]
    monkeypatch.setattr(explain, "connect", lambda agent, identity: Client())
    monkeypatch.setattr(Client, "ask", lambda *_: {"name": "job", "stages": stages})


def test_a_route_is_described_with_its_alternatives_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    routes(monkeypatch)
    assert run_cli(["explain", "route", "job", "keep"]) == 0
    told = capsys.readouterr().out
    assert "trips+keep[0] on pi1 → pi3: by relay a2 since" in told
    assert next(line for line in told.splitlines() if "in use" in line).split()[:3] == ["by", "a2", "24"]
    assert "last resort" in told
    assert "by relay a2, before directly: answers came late" in told


def test_a_route_of_an_unknown_step_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    routes(monkeypatch)
    assert run_cli(["explain", "route", "job", "bets"]) == 2
    assert "Did you mean best?" in capsys.readouterr().err


def test_relay_names_cannot_control_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    routes(monkeypatch, relay="a\x1b[2J")
    assert run_cli(["explain", "route", "job"]) == 0
    assert not {"\x1b", "\x07"} & set(capsys.readouterr().out)


def test_a_fixed_stage_is_described_with_the_option_that_frees_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_scaling(
        {"name": "taxi", "state": "running", "stages": [stage("areas", keeps_number=True)], "silent_nodes": []}
    )
    told = capsys.readouterr().out
    assert "areas: a user fixed its number; to turn autoscaling on: agiledart scale taxi areas auto" in told
    assert "by hand" not in told, "it is so from the start, without a number given by hand"
