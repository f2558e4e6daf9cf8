"""How `checkpoint` looks."""

from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_cli.verbs import applications
from agiledart_node.wire.commands import Checkpoints

EPOCH = {"committed": 7, "life": 2, "age_s": 3.0, "took_ms": 40.0, "bytes": 5000, "survives": 2, "coordinator": "a2"}
ELEMENT = {
    "stage": "sums",
    "index": 1,
    "node": "a2",
    "epoch": 7,
    "life": 2,
    "bytes": 4096,
    "needs": 1,
    "holders": ["a3", "a4"],
}


class Client:
    """An agent that has one answer."""

    asked: Any = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, command: Checkpoints, timeout: float = 0.0) -> dict[str, Any]:
        """Keeps the question."""
        Client.asked = command
        source = ELEMENT | {"stage": "rows", "index": 0, "node": "a1", "needs": 0, "holders": []}
        return {
            "name": "job",
            "version": 1,
            "state": "running",
            "recovery": None,
            "epoch": EPOCH,
            "elements": [source, ELEMENT],
        }


@pytest.mark.parametrize(("verb", "take"), [("list", False), ("take", True)])
def test_a_line_for_each_element(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, take: bool
) -> None:
    monkeypatch.setattr(applications, "connect", lambda agent, identity: Client())
    assert run_cli(["checkpoint", verb, "job"]) == 0
    assert Client.asked == Checkpoints("job", take)
    told = capsys.readouterr().out
    assert "job v1: epoch 7 committed, 3.00 s ago; survives the loss of 2 machines" in told
    (line,) = (line for line in told.splitlines() if line.startswith(" sums"))
    assert line.split() == ["sums", "1", "a2", "7", "(life", "2)", "4,096", "any", "1", "of", "a3,", "a4"]
    assert "its node only" in told
