"""Terminal control characters printed or raised by user code are escaped, in every verb and form."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_node.wire.control_messages import ControlRefusal
from tests.unit.cli.fake_agent import FakeAgent

EVIL = "x\x1b]0;mine\x07\x1b[2J\x9b1m\u202e"
LINES = {
    "lines": [{"node": "n", "step": EVIL, "text": EVIL, "time": 1}],
    "after": {},
    "state": "finished",
    "silent_nodes": [EVIL],
}
LISTED = {
    "applications": [{"name": "a", "version": 1, "state": "failed", "reason": EVIL, "submitted_to": EVIL}],
    "unreadable": 0,
}
STATUS = {"name": "a", "version": 1, "state": "failed", "reason": EVIL, "placement": {EVIL: [EVIL]}, "paths": [[EVIL]],
          "logs": {EVIL: EVIL}, "silent_nodes": [EVIL], "summary": {"malformed": {EVIL: 2}, "results": {EVIL: 3}}}  # fmt: skip


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., int]:
    (folder := tmp_path / "agent").mkdir()

    def run(arguments: list[str], *answers: Any) -> int:
        waiting = iter(answers)
        with FakeAgent(folder, lambda _: ["progress " + EVIL, next(waiting)]):
            return run_cli([*arguments, "--agent", str(folder)])

    return run


@pytest.mark.parametrize("output", ["table", "json"])
@pytest.mark.parametrize(
    ("arguments", "answers"),
    [
        (["logs", "a"], [LINES, {**LINES, "lines": []}]),
        (["list"], [LISTED]),
        (["status", "a"], [STATUS]),
        (["stop", "a"], [STATUS]),
    ],
)
def test_no_control_character_reaches_a_terminal(
    ask: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], answers: list[Any], output: str
) -> None:
    ask([*arguments, "-o", output], *answers)
    shown = capsys.readouterr()
    assert not [c for c in shown.out + shown.err if not c.isprintable() and c != "\n"]
    assert "mine" in shown.out + shown.err


def test_a_refusal_is_escaped_too(ask: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(["status", "a"], ControlRefusal(1, f"no: {EVIL}")) == 1
    assert "no: x\\x1b]0;mine" in capsys.readouterr().err
