"""Bare executor process, before its application is known: the interpreter and the engine's own code, no user code."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
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
        stdout: its output.
    """

    process: ChildProcess
    pair: socket.socket
    handover: socket.socket
    stdout: asyncio.StreamReader
    watch: ExecutorWatch

    async def end(self) -> None:
        """End a process that is not needed, without a trace."""
        self.pair.close()
        self.handover.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        self.watch.close()


@dataclass(frozen=True)
class ExecutorChannels:
    """Channels between the agent and one executor program.

    Attributes:
        pair, handover, stdout, watch: as of `BareProcess`.
        their_pair, their_handover, their_output: descriptors for the program.
    """

    pair: socket.socket
    handover: socket.socket
    stdout: asyncio.StreamReader
    watch: ExecutorWatch
    their_pair: int
    their_handover: int
    their_output: int

    def given_to(self, process: ChildProcess) -> BareProcess:
        """Return the process that has taken its descriptors."""
        return BareProcess(process, self.pair, self.handover, self.stdout, self.watch)


@contextlib.asynccontextmanager
async def executor_channels(shared: ExecutorWatch | None = None) -> AsyncIterator[ExecutorChannels]:
    """Open channels. Close the descriptors for the program at the end of the block, and all others when it fails.

    Args:
        shared: watch of the process that the program joins; None: the process is new, and so is its watch.

    Raises:
        LaunchError: no descriptors are left, or the block raised `OSError`.
    """
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        try:
            if (watch := shared) is None:
                watch = ExecutorWatch()
                ours.callback(watch.close)
                theirs.callback(watch.close_writing_end)
            pairs = [socket.socketpair(), socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
            for our_end, their_end in pairs:
                ours.enter_context(our_end).setblocking(False)
                theirs.enter_context(their_end)
            reading, writing = os.pipe()
            theirs.callback(os.close, writing)
            stdout = asyncio.StreamReader()
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(reading, "rb", buffering=0)
            )
            ours.callback(transport.close)
            (pair, their_pair), (handover, their_handover) = pairs
            yield ExecutorChannels(pair, handover, stdout, watch, their_pair.fileno(), their_handover.fileno(), writing)
        except OSError as error:
            raise LaunchError(f"no process for user code could be started: {error.strerror}") from None
        ours.pop_all()


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
    async with executor_channels() as channels:
        watch = channels.watch
        process = await asyncio.create_subprocess_exec(
            *isolated_command("agiledart_executor.programs.worker"),
            str(channels.their_pair),
            str(watch.writing_end),
            str(channels.their_handover),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=channels.their_output,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(channels.their_pair, watch.writing_end, channels.their_handover),
            cwd=directory,
            env={**executor_environment(os.environ), MARK: watch.mark},
            start_new_session=True,  # Ctrl-C in the agent's terminal is for the agent alone
        )
        watch.listen(process.pid)
        return channels.given_to(process)
