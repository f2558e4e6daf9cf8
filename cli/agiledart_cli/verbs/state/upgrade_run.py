"""`UpgradeRun`: from a running application to its next version with the same state, whatever process is killed meanwhile.

    old version runs                →  stop it with a last checkpoint, under a name that this upgrade alone uses
    it has ended with a checkpoint  →  submit the new version from that checkpoint
    new version is being deployed   →  wait
    new version runs                →  done
    new version failed              →  refuse: its state is retained, and the text says how to restore it

Each pass asks for the state and takes the next step. So another process that makes passes, after the first one was killed, does no
harm: the ring's record admits one run of a version, and the checkpoint is taken once. Another agent takes the place of a lost one.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from agiledart_cli.errors import FAILED
from agiledart_cli.verbs.applications import KEEP_SECONDS
from agiledart_cli.verbs.state.checkpoint_transfer import checkpoint_file, matched, upload
from agiledart_control.agent_place import AgentPlace
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_control.polling import FINAL_STATES
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed
from agiledart_node.wire.checkpoint_commands import CheckpointOrigin, Checkpoints, RemoveCheckpoint
from agiledart_node.wire.commands import Status, Stop, Submit

MAX_NAME_LENGTH: Final = 40
PAUSE_SECONDS: Final = 0.05
FIRST_CHECKPOINT_SECONDS: Final = 30.0
"""Time for which an upgrade waits for the first checkpoint of a new version that runs."""

MAX_STARTS: Final = 3
"""Submissions of the new version by one process; one may fail because a node was killed."""

GIVE_UP_SECONDS: Final = 180.0
"""Time for which an upgrade that was begun looks for an agent, or waits for the new version."""


class UpgradeTask(msgspec.Struct, frozen=True):
    """An upgrade, as one process hands it to another.

    Attributes:
        name: of the application.
        version: of the run that is replaced.
        command: the submission of the new version, encoded.
        drops: steps whose state is omitted.
        places: agents to ask, the preferred one first: path of a socket, or HOST:PORT.
        identity: of the user, for agents on other machines.
    """

    name: str
    version: int
    command: bytes
    drops: tuple[str, ...]
    places: tuple[str, ...]
    identity: str = ""

    @property
    def checkpoint(self) -> str:
        """Name under which the state of the old version is retained."""
        return f"{self.name[:MAX_NAME_LENGTH]}.before-v{self.version + 1}"


class UpgradeRun:
    """Passes of one upgrade.

    Args:
        task: the upgrade.
        report: called with each line of progress.
    """

    def __init__(self, task: UpgradeTask, report: Callable[[str], None]) -> None:
        self._task, self._report = task, report
        self._command = msgspec.msgpack.decode(task.command, type=Submit)
        self._places = list(task.places)
        self._starts = 0
        self._running_since: float | None = None

    def finish(self) -> dict[str, Any]:
        """Make passes until the new version runs; return its status.

        Raises:
            CommandRefusedError: says which version runs, and the way out.
            OperationFailed: nothing was achieved in time; says where the state is.
        """
        until = time.monotonic() + GIVE_UP_SECONDS
        failure: AgileDartError | None = None
        while time.monotonic() < until:
            try:
                with ControlClient(place_of(self._places[0]), self._task.identity or None) as client:
                    if (status := self.step(client)) is not None:
                        return status
                    failure = None
            except NoAgentError as error:
                failure = error
                self._places.append(self._places.pop(0))
            time.sleep(PAUSE_SECONDS)
        why = f" ({failure})" if failure is not None else ""
        raise OperationFailed(
            f"{self._task.name} v{self._task.version + 1} does not run after {GIVE_UP_SECONDS:.0f} s{why}."
            " Run the same command again."
        )

    def step(self, client: ControlClient) -> dict[str, Any] | None:
        """Take the next step; return the status once the new version runs, else None."""
        task = self._task
        status = self._status(client)
        state, version = status["state"], status["version"]
        if version > task.version:
            return self._after(client, status)
        if state in FINAL_STATES:
            self._check_retained(client, state)
            self._start(client)
        elif self._stop(client):
            self._start(client)
        return None

    def _status(self, client: ControlClient) -> dict[str, Any]:
        """Return the application's status.

        Raises:
            NoAgentError: this agent does not know it just now, for example because it has not joined its ring again yet.
            CommandRefusedError: the user may not see it.
        """
        try:
            status: dict[str, Any] = client.ask(Status(self._task.name))
        except CommandRefusedError as error:
            if error.reason:
                raise
            raise NoAgentError(str(error)) from None
        return status

    def _after(self, client: ControlClient, status: dict[str, Any]) -> dict[str, Any] | None:
        """Return the status of a new version that runs and has saved its state; try again when it failed."""
        task, state = self._task, status["state"]
        if state in FINAL_STATES and state != "finished":
            if state == "failed" and self._starts < MAX_STARTS:
                self._start(client)
                return None
            reason = str(status.get("reason", "")).rstrip(".")
            raise CommandRefusedError(f"{task.name} v{status['version']} {state}: {reason}. {self.remedy}", FAILED)
        if state == "finished":
            return status
        if state == "deploying":
            return None
        # Until its first checkpoint the new version depends on the agent that brought its state.
        with contextlib.suppress(CommandRefusedError):
            client.ask(Checkpoints(task.name, take=True), timeout=GIVE_UP_SECONDS)
            return status
        self._running_since = self._running_since or time.monotonic()
        return status if time.monotonic() - self._running_since > FIRST_CHECKPOINT_SECONDS else None

    def _check_retained(self, client: ControlClient, state: str) -> None:
        """Raise `CommandRefusedError` when the old version has ended without a checkpoint: by itself, or by another command."""
        task = self._task
        if task.checkpoint not in [row["name"] for row in client.ask(Checkpoints(""))["retained"]]:
            raise CommandRefusedError(
                f"{task.name} v{task.version} has ended meanwhile ({state}), and not by this upgrade: there is no state to"
                " continue from.",
                FAILED,
            )

    @property
    def remedy(self) -> str:
        """Sentence about the state of a version that has ended."""
        name = self._task.checkpoint
        return (
            f"The state of v{self._task.version} is retained as {name}; start with it:  agiledart checkpoint restore {name}"
            " FILE:NAME"
        )

    def _stop(self, client: ControlClient) -> bool:
        """End the old version with a checkpoint; when that is refused, it runs on. Return whether this process has ended it."""
        task = self._task
        try:
            client.ask(Stop(task.name, False, task.checkpoint), on_progress=self._report, timeout=KEEP_SECONDS)
            return True
        except CommandRefusedError as error:
            status = self._status(client)
            if (
                status["version"] == task.version
                and status["state"] not in FINAL_STATES
                and not self._ends(client, status)
            ):
                raise CommandRefusedError(
                    f"{str(error).rstrip('.')}. {task.name} v{task.version} runs on unchanged.", error.exit_code
                ) from None
            return False

    def _ends(self, client: ControlClient, status: dict[str, Any]) -> bool:
        """Return whether the old version is ending with its checkpoint already, by a request of before.

        A checkpoint is stale when the run has committed more since: a node was lost before the end was written. It is removed.
        """
        name = self._task.checkpoint
        row = next((row for row in client.ask(Checkpoints(""))["retained"] if row["name"] == name), None)
        if row is None:
            return False
        epoch = status.get("epoch") or {}
        if (epoch.get("attempt", 0), epoch.get("committed", 0)) > (row["attempt"], row["epoch"]):
            client.ask(RemoveCheckpoint(name))
        return True

    def _start(self, client: ControlClient) -> None:
        """Submit the new version from the checkpoint, unless another process has done so."""
        task = self._task
        self._starts += 1
        try:
            with checkpoint_file(client, task.checkpoint) as path:
                match, about, digest = matched(path, task.checkpoint, self._command, task.drops)
                upload(client, path, digest, task.name)
            origin = CheckpointOrigin(match.kind, about, digest, match.snapshots)
            client.ask(
                msgspec.structs.replace(self._command, origin=origin), on_progress=self._report, timeout=GIVE_UP_SECONDS
            )
        except (CommandRefusedError, ConfigurationError) as error:
            status = self._status(client)
            if status["version"] == task.version:
                raise CommandRefusedError(f"{str(error).rstrip('.')}. {self.remedy}", FAILED) from None


def place_of(text: str) -> AgentPlace:
    """Return an agent's place from its text in a task."""
    return AgentPlace(socket=Path(text)) if text.startswith("/") else AgentPlace(address=text)
