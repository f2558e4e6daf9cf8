"""`checkpoint recover` asks before it does something that cannot be undone."""

import json
from typing import Any

import pytest

from agiledart_cli.main import run_cli
from agiledart_cli.verbs.state import lost_voters
from agiledart_node.wire.checkpoint_commands import RecoverRun

NOTES = ["it goes on from epoch 7, as a1 knows from its register", "who has read them sees them twice"]
FOUND: dict[str, Any] = {
    "name": "job", "version": 1, "quorum_generation": 1, "epoch": 7, "attempt": 2, "lost_voters": ["a4", "a5"],
    "remaining_voters": ["a1"], "voters": [],
    "warnings": NOTES, "done": False,
}  # fmt: skip


class Client:
    """An agent that recovers everything."""

    def __init__(self) -> None:
        self.asked: list[RecoverRun] = []

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, command: RecoverRun, **_: object) -> dict[str, Any]:
        """Keeps the command."""
        self.asked.append(command)
        return FOUND if command.check else {**FOUND, "voters": ["a1", "a2", "a3"], "done": True}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(lost_voters, "connect", lambda agent, identity: made)
    return made


WORDS = ["checkpoint", "recover", "job", "--without", "a4", "--without", "a5"]
LOOK, DO = RecoverRun("job", ("a4", "a5"), check=True), RecoverRun("job", ("a4", "a5"))


def test_recovery_needs_a_confirmation(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(WORDS) == 2
    assert client.asked == [LOOK]
    told = capsys.readouterr().err
    assert all(note in told for note in NOTES)
    assert "agiledart checkpoint recover job --without a4 --without a5 --yes" in told


def test_a_confirmed_recovery_is_carried_out(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([*WORDS, "--yes"]) == 0
    assert client.asked == [LOOK, DO]
    told = capsys.readouterr().err
    assert "job continues from checkpoint 7 without a4, a5, in generation 1. Its voters: a1, a2, a3." in told
    assert NOTES[1] in told


def test_a_dry_run_changes_nothing(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([*WORDS, "--dry-run", "-o", "json"]) == 0
    assert client.asked == [LOOK]
    assert json.loads(capsys.readouterr().out) == FOUND


def test_at_least_one_node_must_be_named(client: Client) -> None:
    assert run_cli(["checkpoint", "recover", "job"]) == 2
    assert not client.asked
