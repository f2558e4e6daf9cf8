"""Commands that take long: from three seconds on each says what its application waits for, a text once."""

import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agiledart_cli.main import cli
from agiledart_cli.verbs import wait_reporter
from agiledart_node.wire.commands import Command, Nodes, Status
from tests.unit.cli.fake_agent import FakeAgent

CAUSE = {"cause": "silent_input", "text": "payments waits for orders, silent", "seconds": 52.0, "blocks": []}


@pytest.mark.parametrize(
    "words",
    [
        ("scale", "taxi", "count", "2"),
        ("move", "taxi", "count", "a2"),
        ("drain", "a1"),
        ("checkpoint", "take", "taxi"),
        ("stop", "taxi"),
        ("stop", "taxi", "--checkpoint", "before"),
    ],
)
def test_a_command_that_waits_names_the_cause_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    assert wait_reporter.FIRST_SECONDS == 3.0
    monkeypatch.setattr(wait_reporter, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(wait_reporter, "AGAIN_SECONDS", 0.01)
    looks, is_reported = [], threading.Event()

    def reply(command: Command) -> list[Any]:
        if isinstance(command, Nodes):
            return [{"nodes": [{"name": "a1", "applications": ["taxi"]}]}]
        if isinstance(command, Status):
            looks.append(command.name)
            if len(looks) > 2:  # then the first two answers are worked off
                is_reported.set()
            return [{"name": "taxi", "state": "running", "waiting": [CAUSE]}]
        assert is_reported.wait(60), "the command is answered without a look at the application"
        return [None]

    with FakeAgent(tmp_path, reply):
        shown = CliRunner().invoke(cli, [*words, "--agent", str(tmp_path)])
    assert set(looks) == {"taxi"}
    assert shown.output.count("payments waits for orders, silent, for 52") == 1, shown.output


def test_a_command_that_is_quick_asks_nothing(tmp_path: Path) -> None:
    with FakeAgent(tmp_path, lambda _: [None]) as agent:
        CliRunner().invoke(cli, ["stop", "taxi", "--agent", str(tmp_path)])
        assert not any(isinstance(command, Status) for command in agent.asked)
