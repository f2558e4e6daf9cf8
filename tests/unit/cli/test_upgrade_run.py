"""Passes of an upgrade: which step follows which state, and which version runs when a step is refused."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_cli.verbs.state.upgrade_run import MAX_STARTS, UpgradeRun, UpgradeTask, place_of
from agiledart_cli.verbs.state.upgrade_worker import carried_out
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.checkpoint_commands import Checkpoints, ExportCheckpoint, RemoveCheckpoint
from agiledart_node.wire.commands import Status, Stop, Submit
from agiledart_node.wire.control_messages import ControlRefusal
from tests.unit.cli.fake_agent import FakeAgent


def task(*folders: Path, name: str = "taxi") -> UpgradeTask:
    """An upgrade of version 3, by the agents in these folders."""
    places = tuple(str(folder / "control.sock") for folder in folders)
    return UpgradeTask(name, 3, msgspec.msgpack.encode(Submit(name, b"", b"")), (), places)


def failed(command: Any) -> list[Any]:
    """Answers about a new version that fails, whose state cannot be fetched."""
    return status("failed", 4, "its port is taken") if isinstance(command, Status) else [ControlRefusal(0, "gone")]


def status(state: str, version: int = 3, reason: str = "") -> list[Any]:
    """The answer to `Status`."""
    return [{"state": state, "version": version, "reason": reason}]


def test_a_new_version_that_runs_is_the_end(tmp_path: Path) -> None:
    answers = [status("deploying", 4), status("deploying", 4), status("running", 4), [{}]]
    with FakeAgent(tmp_path, lambda _: answers.pop(0)) as agent:
        assert UpgradeRun(task(tmp_path), print).finish()["version"] == 4
        assert agent.asked == [Status("taxi")] * 3 + [Checkpoints("taxi", take=True)]


def test_a_refused_stop_leaves_the_old_version_running(tmp_path: Path) -> None:
    def reply(command: Any) -> list[Any]:
        if isinstance(command, Stop):
            return [ControlRefusal(0, "no node can keep it.")]
        return [{"retained": []}] if isinstance(command, Checkpoints) else status("running")

    with (
        FakeAgent(tmp_path, reply) as agent,
        pytest.raises(CommandRefusedError, match=r"^no node can keep it\. taxi v3 runs on unchanged\.$"),
    ):
        UpgradeRun(task(tmp_path), print).finish()
    assert Stop("taxi", False, "taxi.before-v4") in agent.asked


@pytest.mark.parametrize(("committed", "removed"), [(9, []), (10, [RemoveCheckpoint("taxi.before-v4")])])
def test_an_end_that_was_requested_before_is_waited_for_unless_the_run_has_gone_on(
    tmp_path: Path, committed: int, removed: list[Any]
) -> None:
    """An agent was killed after the checkpoint was made; the run has ended with it, or goes on from the epoch before."""
    row = {"name": "taxi.before-v4", "attempt": 2, "epoch": 9}

    def reply(command: Any) -> list[Any]:
        if isinstance(command, Stop):
            return [ControlRefusal(0, "There is a checkpoint taxi.before-v4 already")]
        if isinstance(command, Status):
            return [status("running")[0] | {"epoch": {"attempt": 2, "committed": committed}}]
        return [{"retained": [row]}]

    with FakeAgent(tmp_path, reply) as agent:
        with ControlClient(place_of(str(tmp_path / "control.sock"))) as client:
            assert UpgradeRun(task(tmp_path), print).step(client) is None
        assert [command for command in agent.asked if isinstance(command, RemoveCheckpoint)] == removed


def test_a_failed_new_version_names_the_retained_state(tmp_path: Path) -> None:
    with (
        FakeAgent(tmp_path, failed) as agent,
        pytest.raises(
            CommandRefusedError,
            match=r"^taxi v4 failed: its port is taken\. The state of v3 is retained as",
        ),
    ):
        UpgradeRun(task(tmp_path), print).finish()
    assert len([command for command in agent.asked if isinstance(command, ExportCheckpoint)]) == MAX_STARTS


def test_a_run_that_ended_by_itself_has_no_state(tmp_path: Path) -> None:
    def reply(command: Any) -> list[Any]:
        return [{"retained": [{"name": "other"}]}] if isinstance(command, Checkpoints) else status("finished")

    with FakeAgent(tmp_path, reply), pytest.raises(CommandRefusedError, match=r"has ended meanwhile \(finished\)"):
        UpgradeRun(task(tmp_path), print).finish()


def test_another_agent_takes_the_place_of_a_lost_one(tmp_path: Path) -> None:
    lost, there = tmp_path / "a1", tmp_path / "a2"
    for folder in (lost, there):
        folder.mkdir()
    with FakeAgent(there, lambda _: status("running", 4)):
        assert UpgradeRun(task(lost, there), print).finish()["state"] == "running"


def test_an_agent_that_has_not_joined_yet_is_asked_again(tmp_path: Path) -> None:
    answers = [[ControlRefusal(0, "a1 is not in a ring yet; try again in a few seconds.")], status("running", 4), [{}]]
    with FakeAgent(tmp_path, lambda _: answers.pop(0)):
        assert UpgradeRun(task(tmp_path), print).finish()["version"] == 4
    forbidden = tmp_path / "b"
    forbidden.mkdir()
    with (
        FakeAgent(forbidden, lambda _: [ControlRefusal(0, "it is Ada's", 1, "owner")]),
        pytest.raises(CommandRefusedError, match="Ada"),
    ):
        UpgradeRun(task(forbidden), print).finish()


def test_the_process_of_an_upgrade_returns_the_status_or_the_refusal(tmp_path: Path) -> None:
    with FakeAgent(tmp_path, lambda _: status("running", 4)):
        assert carried_out(task(tmp_path), print)["version"] == 4
    other = tmp_path / "b"
    other.mkdir()
    with FakeAgent(other, failed), pytest.raises(CommandRefusedError, match="taxi v4 failed: its port is taken"):
        carried_out(task(other), print)


def test_a_long_name_makes_a_valid_checkpoint_name() -> None:
    assert len(task(name="x" * 64).checkpoint) <= 64
