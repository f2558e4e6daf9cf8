"""Bare executor process, before its application is known: the interpreter and the engine's own code, no user code.

Interpreter and imports are most of an executor's start (0.2 s of CPU on a server, 0.35 where bytecode may not be
stored). A run that lost a host waits for the slowest start of all its hosts. So an agent whose applications are saved
by epochs keeps one spare process ready.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from agiledart_agent.executors.executor_watch import ExecutorWatch
from agiledart_agent.executors.isolated_python import isolated_command, isolated_environment

REST_SECONDS = 15.0
"""Time from an application's start, or that of its new attempt, to the start of the next spare: right after a loss
other work comes first, and a job of ten seconds should not pay for a process that it never needs.
"""

_SMALL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}
"""Allocators that return memory to the system.

Arrow's own pool (mimalloc) and glibc's arenas, one for each thread, kept 23 MB unused in a job over columns (agent and
executor 151 MB PSS, then 128, at the same CPU time). The agent's environment overrides these.
"""


class LaunchError(Exception):
    """Instances could not be started. The text is for the user."""


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
        """End a process that is not needed, without a trace."""
        self.pair.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        self.watch.close()


def executor_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an executor: the agent's, without the agent's settings.

    A join token may stand there; user code must not see it.
    """
    return {**_SMALL, **isolated_environment(own), "PYTHONUNBUFFERED": "1"}


async def start_bare(directory: str) -> BareProcess:
    """Start a bare process in a directory.

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
            *isolated_command("agiledart_executor.programs.worker"),
            str(theirs.fileno()),
            str(watch.writing_end),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(theirs.fileno(), watch.writing_end),
            cwd=directory,
            env=executor_environment(os.environ),
            start_new_session=True,  # Ctrl-C in the agent's terminal is for the agent alone
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


class SpareProcesses:
    """Spare processes of an agent: usually one, more for a start that is announced.

    Args:
        start: starts one.
    """

    def __init__(self, start: Callable[[], Awaitable[BareProcess]]) -> None:
        self._start = start
        self._processes: list[BareProcess] = []
        self._beginning: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the spares."""
        return tuple(spare.process.pid for spare in self._processes)

    def want(self) -> None:
        """Start a spare after a while, if there is none."""
        self._begin(1, REST_SECONDS)

    def want_now(self, count: int) -> None:
        """Start so many spares at once; those that are there count."""
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None
        self._begin(count, 0.0)

    def _begin(self, count: int, rest: float) -> None:
        if len(self._processes) < count and (self._beginning is None or self._beginning.done()):
            self._beginning = asyncio.get_running_loop().create_task(self._fill(count, rest))

    async def _fill(self, count: int, rest: float) -> None:
        await asyncio.sleep(rest)
        with contextlib.suppress(LaunchError):  # a caller that needs a process tries again, and reports the error
            while len(self._processes) < count:
                self._processes.append(await self._start())

    def take(self) -> BareProcess | None:
        """Return a spare process, for the caller to configure. None: there is none; dead ones are reaped."""
        while self._processes:
            spare = self._processes.pop(0)
            if spare.process.returncode is None:
                return spare
            self._end_spare(spare)
        return None

    def dismiss(self, count: int = 0) -> None:
        """End all spares but so many: no application needs more."""
        if self._beginning is not None and not count:
            self._beginning.cancel()
        for spare in self._processes[count:]:
            self._end_spare(spare)
        del self._processes[count:]

    def _end_spare(self, spare: BareProcess) -> None:
        task = asyncio.get_running_loop().create_task(spare.end())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def close(self) -> None:
        """End the spares and wait for their end."""
        beginning = self._beginning
        self.dismiss()
        if beginning is not None:
            await asyncio.wait([beginning])
            self.dismiss()  # it may have started in the last iteration of the loop
        if self._endings:
            await asyncio.wait(self._endings)
