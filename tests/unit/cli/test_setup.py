"""`setup`: the token is written, the service begins, and the token goes once the node has joined."""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from agiledart_cli.verbs.setup import DROP_IN, DROP_IN_TEXT, STATE, TOKEN, UNIT, Setup, call, set_up_service
from agiledart_control.agent_place import AGENT_FILE
from agiledart_kernel.errors import ConfigurationError, OperationFailed

ROOT = Path(__file__).resolve().parents[3]


class Machine:
    """The root of a machine with the unit; `systemctl enable` starts an agent that is in its ring at once."""

    def __init__(self, root: Path, *, joins: bool = True) -> None:
        self.root, self._joins = root, joins
        self.calls: list[tuple[str, ...]] = []
        self.token_at_start: str | None = None
        unit = root / "usr/lib/systemd/system" / UNIT
        unit.parent.mkdir(parents=True)
        unit.touch()

    def call(self, words: Sequence[str]) -> None:
        self.calls.append(tuple(words))
        if "enable" in words and (self.root / TOKEN).is_file():
            self.token_at_start = (self.root / TOKEN).read_text()
        if "enable" in words and self._joins:
            state = self.root / STATE
            state.mkdir(parents=True)
            (state / AGENT_FILE).write_text(json.dumps({"pid": os.getpid(), "name": "pi7"}))


def test_a_node_joins_and_the_token_goes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert Setup(tmp_path, machine.call).run("adart1secret") == "pi7"
    assert machine.token_at_start == "adart1secret\n"
    assert machine.calls == [
        ("systemctl", "daemon-reload"),
        ("systemctl", "enable", "--now", UNIT),
        ("systemctl", "daemon-reload"),
    ]
    assert not (tmp_path / TOKEN).exists()
    assert not (tmp_path / DROP_IN).exists()


def test_a_network_is_founded_without_a_token(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert Setup(tmp_path, machine.call).run(None) == "pi7"
    assert machine.token_at_start is None
    assert not (tmp_path / DROP_IN).exists()


def test_a_node_that_does_not_join_keeps_the_token_for_a_second_try(tmp_path: Path) -> None:
    machine = Machine(tmp_path, joins=False)
    with pytest.raises(OperationFailed, match="journalctl -u agiledart"):
        Setup(tmp_path, machine.call, seconds=0.0).run("adart1secret")
    assert stat.S_IMODE((tmp_path / TOKEN).stat().st_mode) == 0o600
    assert (tmp_path / DROP_IN).read_text() == DROP_IN_TEXT


def test_the_drop_in_is_that_of_the_how_to() -> None:
    def settings(text: str) -> list[str]:
        return [line for line in text.splitlines() if line and not line.startswith("#")]

    assert settings(DROP_IN_TEXT) == settings((ROOT / "deploy/systemd/join-token.conf").read_text())


def test_the_refusal_without_a_unit_names_the_package(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=r"There is no agiledart\.service"):
        Setup(tmp_path, lambda words: None).run(None)


def test_wrong_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    for words in (
        [],
        ["--new", "--join", "x"],
        ["--new", "--delete-token-file"],
        ["--join", "x", "--delete-token-file"],
    ):
        assert runner.invoke(set_up_service, words).exit_code == 2, words
    monkeypatch.setattr(os, "geteuid", lambda: 1_000)
    with pytest.raises(ConfigurationError, match="sudo agiledart setup"):
        runner.invoke(set_up_service, ["--new"], catch_exceptions=False)
    with pytest.raises(OperationFailed, match="false: exit code 1"):
        call(("false",))
