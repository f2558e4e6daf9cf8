"""Bare executor process, before its application is known: the interpreter and the engine's own code, no user code."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from agiledart_agent.executors.child_process import ChildProcess
from agiledart_agent.executors.descendants import MARK
from agiledart_agent.executors.executor_watch import ExecutorWatch
from agiledart_agent.executors.isolated_python import isolated_command, isolated_environment
from agiledart_executor.process.silent_libraries import SILENT

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
        handover: the agent's end of the pair that carries connections for the process: the stream would lose them.
    """

    process: ChildProcess
    pair: socket.socket
    handover: socket.socket
    watch: ExecutorWatch

    async def end(self) -> None:
        """End a process that is not needed, without a trace."""
        self.pair.close()
        self.handover.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        self.watch.close()


def executor_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an executor: the agent's, without the agent's settings.

    A join token may stand there; user code must not see it.
    """
    return {**_SMALL, **isolated_environment(own), **SILENT, "PYTHONUNBUFFERED": "1"}


async def start_bare(directory: str) -> BareProcess:
    """Start a bare process in a directory.

    Raises:
        LaunchError: the system gives no process or no descriptors.
    """
    try:
        with contextlib.ExitStack() as undo:
            ours, theirs = (undo.enter_context(end) for end in socket.socketpair())
            handover, taking = (
                undo.enter_context(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            )
            watch = ExecutorWatch()
            undo.pop_all()
    except OSError as error:  # no descriptors left
        raise LaunchError(f"no process for user code could be started: {error.strerror}") from None
    ours.setblocking(False)
    handover.setblocking(False)
    try:
        process = await asyncio.create_subprocess_exec(
            *isolated_command("agiledart_executor.programs.worker"),
            str(theirs.fileno()),
            str(watch.writing_end),
            str(taking.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(theirs.fileno(), watch.writing_end, taking.fileno()),
            cwd=directory,
            env={**executor_environment(os.environ), MARK: watch.mark},
            start_new_session=True,  # Ctrl-C in the agent's terminal is for the agent alone
        )
    except BaseException as error:  # cancelled, too
        ours.close()
        handover.close()
        watch.close()
        if isinstance(error, OSError):
            raise LaunchError(f"no process for user code could be started: {error.strerror}") from None
        raise
    finally:
        theirs.close()
        taking.close()
        watch.close_writing_end()
    watch.listen(process.pid)
    return BareProcess(process, ours, handover, watch)
