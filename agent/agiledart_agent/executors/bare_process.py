"""An executor's process before it serves anybody: the interpreter and the engine's own code, nothing of a user's.

Interpreter and imports are most of an executor's start (0.2 s of CPU on a server, 0.35 where bytecode may not be kept), and a run
that lost a host waits for the slowest start of all its hosts. So an agent whose applications are saved by epochs keeps one at hand.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from agiledart_agent.executors.executor_watch import ExecutorWatch

REST_SECONDS = 3.0
"""From an application's start, or that of its new life, until the next spare is begun: who has just lost a host has more to do."""

CREDENTIALS = "AGILEDART_CREDENTIALS"
"""Names a folder with secrets of connectors, which executors open."""

_SMALL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Allocators that give memory back: Arrow's own pool (mimalloc) and glibc's arenas, one for each thread, kept 23 MB of a job in
columns that nobody used (agent and executor 151 MB PSS, then 128, at the same CPU time). What the agent's environment says goes
before.
"""


class LaunchError(Exception):
    """Instances could not be started; the text is in the user's words."""


@dataclass
class BareProcess:
    """A process that waits for its `Configure`.

    Attributes:
        pair: the agent's end of the socket pair.
    """

    process: asyncio.subprocess.Process
    pair: socket.socket
    watch: ExecutorWatch

    async def end(self) -> None:
        """It is not needed: nothing of it stays."""
        self.pair.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        self.watch.close()


def executor_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of an executor: the agent's, without the agent's settings.

    A join token may stand there; user code has no business with it.
    """
    others = {key: value for key, value in own.items() if not key.startswith("AGILEDART_") or key == CREDENTIALS}
    return {**_SMALL, **others, "PYTHONUNBUFFERED": "1"}


async def start_bare(directory: str) -> BareProcess:
    """Start one in a directory.

    Raises:
        LaunchError: the system gives no process or no descriptors.
    """
    try:
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            undo.callback(theirs.close)
            watch = ExecutorWatch()
            undo.pop_all()
    except OSError as error:  # no descriptors left
        raise LaunchError(f"no process for user code could be started: {error.strerror}") from None
    ours.setblocking(False)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "agiledart_executor.programs.worker",
            str(theirs.fileno()),
            str(watch.writing_end),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(theirs.fileno(), watch.writing_end),
            cwd=directory,
            env=executor_environment(os.environ),
            start_new_session=True,  # Ctrl-C in the agent's terminal is the agent's business
        )
    except BaseException as error:  # cancelled, too
        ours.close()
        watch.close()
        if isinstance(error, OSError):
            raise LaunchError(f"no process for user code could be started: {error.strerror}") from None
        raise
    finally:
        theirs.close()
        watch.close_writing_end()
    watch.listen(process.pid)
    return BareProcess(process, ours, watch)


class SpareProcess:
    """At most one process at hand.

    Args:
        start: starts one.
    """

    def __init__(self, start: Callable[[], Awaitable[BareProcess]]) -> None:
        self._start = start
        self._process: BareProcess | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int:
        """Of the one at hand; 0: there is none."""
        return 0 if self._process is None else self._process.process.pid

    def want(self) -> None:
        """Have one at hand after a while."""
        if self._process is None and (self._beginning is None or self._beginning.done()):
            self._beginning = asyncio.get_running_loop().create_task(self._begin())

    async def _begin(self) -> None:
        await asyncio.sleep(REST_SECONDS)
        with contextlib.suppress(LaunchError):  # whoever needs one tries again, and says it
            self._process = await self._start()

    def take(self) -> BareProcess | None:
        """The one at hand, to be configured by who takes it; None: there is none, or it has died."""
        spare, self._process = self._process, None
        if spare is None or spare.process.returncode is None:
            return spare
        self._end_spare(spare)
        return None

    def dismiss(self) -> None:
        """Nobody needs one any more."""
        if self._beginning is not None:
            self._beginning.cancel()
        spare, self._process = self._process, None
        if spare is not None:
            self._end_spare(spare)

    def _end_spare(self, spare: BareProcess) -> None:
        task = asyncio.get_running_loop().create_task(spare.end())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def close(self) -> None:
        """End it and wait for that."""
        beginning = self._beginning
        self.dismiss()
        if beginning is not None:
            await asyncio.wait([beginning])
            self.dismiss()  # it may have come with the last turn
        if self._endings:
            await asyncio.wait(self._endings)
