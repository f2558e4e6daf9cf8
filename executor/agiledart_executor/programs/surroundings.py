"""Surroundings of an executor program: a process of its own, or one that it shares (`shared_programs.py`)."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from agiledart_connectors.credentials import provision_secrets
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.user_code.user_limits import UserLimits
from agiledart_executor.process.python_gc import collect_rarely
from agiledart_executor.user_code.application_confinement import confine_application
from agiledart_executor.user_code.bounds import Bounds, bind_process
from agiledart_executor.user_code.crash_report import CrashReporter
from agiledart_executor.user_code.watchdog import UserCall, Watchdog
from agiledart_executor.wire.agent_messages import Configure

LookAtCall = Callable[[], UserCall | None]
"""Returns the call of user code that a program is busy with; None while it is with none."""


class OwnProcessNeeded(Exception):
    """The application cannot share a process; the text says why."""


class Surroundings(Protocol):
    """The process around an executor program, and what the program may ask of it.

    Attributes:
        root: the agent's state directory.
        run: as in `UserModules`.
    """

    @property
    def root(self) -> Path: ...

    @property
    def run(self) -> str: ...

    def watch(self, look: LookAtCall) -> None:
        """Watch the calls of the program's user code once it is confined."""
        ...

    def confine(self, part: DeploymentPart) -> None:
        """Close the agent's files to user code. Raises `OperationFailed`."""
        ...

    def take_limits(self, limits: UserLimits) -> Bounds:
        """Return the bounds with the application's own limits. Raises `OwnProcessNeeded`."""
        ...

    def mark_of(self, bundle: bytes) -> str:
        """Return the mark that names of the user code's files have in stack dumps; empty: no other code is there."""
        ...

    def loaded(self) -> None:
        """Note that the user code is loaded."""
        ...

    def has_heartbeat(self, number: int) -> bool:
        """Return whether another program of the process has sent the heartbeat with this number; else this one sends it."""
        ...

    def close(self) -> None:
        """End what was begun for the program."""
        ...


class OwnProcess:
    """A process with one executor program.

    Args:
        configuration: the agent's first message.
        crash_reporter: reports a crash through a pipe when the socket to the agent cannot be used.
    """

    def __init__(self, configuration: Configure, crash_reporter: CrashReporter) -> None:
        self._configuration, self._crash_reporter = configuration, crash_reporter
        self._watchdog: Watchdog | None = None
        self.root, self.run = Path.cwd(), ""
        bind_process(configuration.bounds)
        provision_secrets(configuration.secrets)

    def watch(self, look: LookAtCall) -> None:
        """Make the watchdog."""
        bounds, application = self._configuration.bounds, self._configuration.application
        self._watchdog = Watchdog(application, bounds, look, self._crash_reporter)

    def confine(self, part: DeploymentPart) -> None:
        """Confine the process, and start the watchdog."""
        configuration = self._configuration
        has_latencies = configuration.latency_log_bytes > 0
        confine_application(part, self.root, configuration.home, configuration.closed, has_latencies=has_latencies)
        if self._watchdog is not None:
            self._watchdog.start()  # after the confinement, which covers only this thread and those that it starts later

    def take_limits(self, limits: UserLimits) -> Bounds:
        """Let the limits hold for the process."""
        bounds = self._configuration.bounds.with_users(limits)
        if self._watchdog is not None:
            self._watchdog.set_bounds(bounds)
        return bounds

    def mark_of(self, bundle: bytes) -> str:
        """Return nothing: the process has no other user code."""
        return ""

    def loaded(self) -> None:
        """Collect garbage rarely from now on."""
        collect_rarely()

    def has_heartbeat(self, number: int) -> bool:
        """Return False: there is no other program."""
        return False

    def close(self) -> None:
        """Stop the watchdog."""
        if self._watchdog is not None:
            self._watchdog.stop()
