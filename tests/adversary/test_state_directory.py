"""The state directory stays this user's alone: open modes are closed, foreign links refused, root warned."""

import dataclasses
import os
from pathlib import Path

import pytest

from agiledart_agent.executors.protected_paths import root_refusal
from agiledart_agent.settings import AgentSettings
from agiledart_agent.state_files.mode_watch import restore_modes
from agiledart_agent.state_files.private_files import secure_state_directory
from agiledart_cli.verbs.machine_checks import check_token_files
from agiledart_kernel.errors import OperationFailed
from tests.adversary.findings import probe, twin


@probe(11)
@pytest.mark.parametrize(("name", "mode"), [("", 0o755), ("authority.key", 0o644), ("control.cookie", 0o604)])
def test_folders_opened_to_others_are_closed_and_named(tmp_path: Path, name: str, mode: int) -> None:
    tmp_path.chmod(0o700)
    for file in ("authority.key", "control.cookie", "agent.json"):
        (tmp_path / file).touch(0o600)
    opened = tmp_path / name
    opened.chmod(mode)
    assert restore_modes(tmp_path) == [str(opened)]
    assert opened.stat().st_mode & 0o077 == 0
    assert restore_modes(tmp_path) == []


@twin(11)
def test_other_files_keep_their_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "agent.json").touch()
    (tmp_path / "agent.json").chmod(0o644)
    assert restore_modes(tmp_path) == []
    assert (tmp_path / "agent.json").stat().st_mode & 0o777 == 0o644


@probe(30)
@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_state_directory_that_is_a_link_in_a_folder_of_others_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "state").symlink_to(tmp_path / "real")
    shared.chmod(mode)
    with pytest.raises(OperationFailed, match="is a link"):
        secure_state_directory(shared / "state")


@twin(30)
@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_a_state_directory_that_is_a_link_of_this_user_is_taken(tmp_path: Path, mode: int) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    own = tmp_path / "own"
    own.mkdir()
    (own / "state").symlink_to(tmp_path / "real")
    own.chmod(mode)
    secure_state_directory(own / "state")


@probe(10)
def test_the_doctor_names_the_file_of_a_token(tmp_path: Path) -> None:
    (tmp_path / "agent.token").write_text("ADART1" + "a" * 300)
    (finding,) = check_token_files([tmp_path])
    assert str(tmp_path / "agent.token") in finding.text


@twin(10)
def test_the_doctor_is_silent_without_tokens(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("nothing")
    (tmp_path / "folder").mkdir()
    assert check_token_files([tmp_path, tmp_path / "missing"]) == []


@probe(19)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_an_agent_as_root_runs_no_users_code(tmp_path: Path) -> None:
    assert "as root" in root_refusal(AgentSettings(state_dir=tmp_path))


@twin(19)
def test_an_agent_that_may_runs_users_code(tmp_path: Path) -> None:
    assert root_refusal(dataclasses.replace(AgentSettings(state_dir=tmp_path), allow_root=True)) == ""
