"""Executor process as its agent sees it, whichever process is its parent."""

import asyncio
import contextlib
import os
import signal
from typing import Protocol

STATUS_SECONDS = 1.0
"""Longest wait for the exit code of a process that has ended; its parent may have died, too."""


class ChildProcess(Protocol):
    """A process of an executor; `asyncio.subprocess.Process` is one."""

    @property
    def pid(self) -> int:
        """Return its process id."""
        ...

    @property
    def returncode(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        ...

    async def wait(self) -> int:
        """Wait for its end. Return its exit code."""
        ...

    def kill(self) -> None:
        """End it at once. Raises ProcessLookupError when it has ended."""
        ...


class ReportedProcess:
    """A process whose end another process reports.

    Args:
        pid: its process id.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._pid

    @property
    def returncode(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """Wait for its end. Return its exit code."""
        return await asyncio.shield(self._ended)

    def set_status(self, code: int) -> None:
        """Take its exit code; the first report counts."""
        if not self._ended.done():
            self._ended.set_result(code)


class ForkedProcess(ReportedProcess):
    """A child of the nursery. The agent follows it by a descriptor of the process, so the nursery may die before it.

    Args:
        pid: its process id.
        handle: descriptor of the process; this object owns it.
    """

    def __init__(self, pid: int, handle: int) -> None:
        super().__init__(pid)
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._status: asyncio.TimerHandle | None = None
        self._loop.add_reader(handle, self._has_ended)

    def kill(self) -> None:
        """End it at once."""
        if self._ended.done() or self._handle < 0:
            raise ProcessLookupError
        signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def set_status(self, code: int) -> None:
        """Take the exit code that the nursery reports."""
        if self._status is not None:
            self._status.cancel()
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1
        super().set_status(code)

    def _has_ended(self) -> None:
        """Wait a moment for the nursery's report of a process that has ended."""
        self._loop.remove_reader(self._handle)
        self._status = self._loop.call_later(STATUS_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """Take the status from the kernel, as the heir of a nursery that has died; else the end counts as a kill."""
        code = -signal.SIGKILL
        with contextlib.suppress(OSError):
            status = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG)
            if status is not None:
                code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        self.set_status(code)


async def end_within(process: ChildProcess, seconds: float) -> int:
    """Wait for the end of a process, and end it after this time. Return its exit code."""
    try:
        return await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
