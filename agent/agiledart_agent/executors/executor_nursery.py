"""Starter of executors: one process that has imported the engine forks them; without it each starts an interpreter.

Interpreter and imports are most of an executor's start (0.2 s of CPU on a server, 0.35 where bytecode may not be stored),
and most of its memory. A run that lost a host waits for the slowest start of all its hosts.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable

import msgspec

from agiledart_agent.executors.bare_process import (
    BareProcess,
    LaunchError,
    executor_channels,
    executor_environment,
    start_bare,
)
from agiledart_agent.executors.child_process import ForkedProcess
from agiledart_agent.executors.isolated_python import isolated_command
from agiledart_executor.wire.nursery_messages import (
    MAX_MESSAGE,
    ChildEnded,
    ChildRefused,
    ChildStarted,
    NurseryMessage,
    NurseryReady,
    StartChild,
)

PROGRAM = "agiledart_executor.programs.nursery"

START_SECONDS = 27.0
"""Time for interpreter and imports on a slow board."""

ANSWER_SECONDS = 5.0
"""Time for one fork; then the executor starts without the nursery."""

PAUSE_SECONDS = 60.0
"""Time without a nursery after one that could not be used."""

_DECODER = msgspec.msgpack.Decoder(NurseryMessage)


class NurseryUnavailableError(Exception):
    """The nursery cannot be used now; the text says why."""


class ExecutorNursery:
    """Starts executors for one agent.

    Args:
        directory: working directory of the executors.
        is_wanted: whether executors are forked; else each starts an interpreter.
        warn: called with a text when executors start without the nursery.
    """

    def __init__(self, directory: str, is_wanted: bool, warn: Callable[[str], None]) -> None:
        self._directory, self._is_wanted, self._warn = directory, is_wanted, warn
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._ready: asyncio.Future[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._forking = asyncio.Lock()
        self._requests: dict[int, asyncio.Future[tuple[int, int]]] = {}
        self._number = 0
        self._children: dict[int, ForkedProcess] = {}
        self._codes: dict[int, int] = {}
        self._unusable_until = 0.0

    @property
    def pid(self) -> int:
        """Return the process id of the nursery; 0 without one."""
        return self._process.pid if self._process is not None else 0

    def warm_up(self) -> None:
        """Start the nursery, because an executor may be needed soon."""
        if self._is_wanted and self._is_usable and self._starting is None and self._socket is None:
            self._starting = asyncio.get_running_loop().create_task(self._warm_up())

    async def start(self) -> BareProcess:
        """Start one executor. Raises `LaunchError` when the system gives no process."""
        if self._is_wanted:
            # One request at a time: a fork takes milliseconds, the socket has room for it, and no other one waits for a nursery
            # that has just failed.
            async with self._forking:
                if self._is_usable:
                    try:
                        return await self._fork()
                    except NurseryUnavailableError as error:
                        self._warn(f"executors start without their nursery for {PAUSE_SECONDS:.0f} s: {error}")
                        self._unusable_until = asyncio.get_running_loop().time() + PAUSE_SECONDS
                        await self.close()
        return await start_bare(self._directory)

    async def close(self) -> None:
        """End the nursery. Executors live on."""
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
        process, self._process = self._process, None
        self._disconnect("it was ended")
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @property
    def _is_usable(self) -> bool:
        return asyncio.get_running_loop().time() >= self._unusable_until

    async def _warm_up(self) -> None:
        try:
            async with self._forking:
                await self._connect()
        except NurseryUnavailableError:
            await self.close()  # the start of an executor tries again, and reports the reason
        finally:
            self._starting = None

    async def _fork(self) -> BareProcess:
        """Fork one executor. Raises `NurseryUnavailableError`, or `LaunchError` when the system gives no process."""
        nursery = await self._connect()
        async with executor_channels() as channels:
            watch = channels.watch
            theirs = [channels.their_pair, watch.writing_end, channels.their_output, channels.their_handover]
            child = ForkedProcess(*await self._ask(nursery, theirs))
            self._follow(child)
            watch.listen(child.pid)
            return channels.given_to(child)

    def _follow(self, child: ForkedProcess) -> None:
        if (code := self._codes.pop(child.pid, None)) is not None:
            child.set_status(code)
        else:
            self._children[child.pid] = child
        self._codes.clear()  # of children whose start failed: their numbers may be another's one day

    async def _ask(self, channel: socket.socket, descriptors: list[int]) -> tuple[int, int]:
        """Send one request. Return process id and descriptor of the executor."""
        self._number += 1
        number = self._number
        answer = self._requests[number] = asyncio.get_running_loop().create_future()
        try:
            message = msgspec.msgpack.encode(StartChild(number, self._directory))
            socket.send_fds(channel, [message], descriptors)
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError:
            raise NurseryUnavailableError("it does not answer") from None
        except OSError as error:
            raise NurseryUnavailableError(error.strerror or str(error)) from None
        finally:
            self._requests.pop(number, None)

    async def _connect(self) -> socket.socket:
        """Return the socket to the nursery; start the process where there is none."""
        if self._socket is None or self._ready is None:
            await self._begin()
        assert self._socket is not None
        assert self._ready is not None
        try:
            await asyncio.wait_for(asyncio.shield(self._ready), START_SECONDS)
        except TimeoutError:
            raise NurseryUnavailableError(f"it did not start within {START_SECONDS:.0f} s") from None
        if self._socket is None:
            raise NurseryUnavailableError("its process ended")
        return self._socket

    async def _begin(self) -> None:
        if self._process is not None:
            await self._process.wait()
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise NurseryUnavailableError(error.strerror or str(error)) from None
        try:
            self._process = await asyncio.create_subprocess_exec(
                *isolated_command(PROGRAM), str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), cwd=self._directory, env=executor_environment(os.environ),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise NurseryUnavailableError(error.strerror or str(error)) from None
        finally:
            theirs.close()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        self._socket, self._ready = ours, loop.create_future()
        loop.add_reader(ours, self._read)

    def _read(self) -> None:
        """Take the messages of the nursery."""
        assert self._socket is not None
        while self._socket is not None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, MAX_MESSAGE, 1)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._disconnect("its process ended")
                return
            self._take(_DECODER.decode(data), descriptors)

    def _take(self, message: NurseryMessage, descriptors: list[int]) -> None:
        match message:
            case NurseryReady(threads) if self._ready is not None and not self._ready.done():
                if threads > 1:
                    self._ready.set_exception(NurseryUnavailableError(f"its imports started {threads - 1} threads"))
                else:
                    self._ready.set_result(None)
            case ChildStarted(number, pid) if len(descriptors) == 1:
                answer = self._requests.get(number)
                if answer is None or answer.done():  # too late: the executor has started in another way
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(descriptors[0], signal.SIGKILL)
                    os.close(descriptors[0])
                else:
                    answer.set_result((pid, descriptors[0]))
            case ChildRefused(number, reason):
                answer = self._requests.get(number)
                if answer is not None and not answer.done():
                    answer.set_exception(LaunchError(f"no process for user code could be started: {reason}"))
            case ChildEnded(pid, code):
                if (child := self._children.pop(pid, None)) is not None:
                    child.set_status(code)
                elif self._requests:
                    self._codes[pid] = code  # it ended before its start was noted
            case _:
                pass

    def _disconnect(self, reason: str) -> None:
        """Forget the nursery; requests fail, and children report their end without it."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(NurseryUnavailableError(reason))
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(NurseryUnavailableError(reason))
            self._ready.exception()  # it may have no reader
        self._children.clear()
        self._codes.clear()
