"""A process that several applications of one owner share: each has an executor program there, which looks like a process.

opened    its folders are set aside, and it has confined itself
attached  a program runs; its socket pair, its pair for connections and its output are the agent's
ended     of one program: the agent closed its pair; the process says when it has released everything
ended     of the process: all programs have ended, and `SharedEnd` says which application was at work
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from agiledart_agent.executors.bare_process import BareProcess, LaunchError, executor_channels
from agiledart_agent.executors.child_process import end_within
from agiledart_agent.executors.executor_listener import lines_of, messages_of
from agiledart_agent.executors.executor_process import LAUNCH_SECONDS, TO_EXECUTOR
from agiledart_agent.executors.shared_folders import SharedFolders
from agiledart_agent.executors.shared_program import SharedEnd, SharedProgramProcess
from agiledart_executor.wire.agent_messages import (
    ExecutorMessage,
    ProgramEnded,
    RequestCompleted,
    RequestFailed,
    ShareProcess,
)
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import FrameKind, frame

_END_SECONDS: Final = 2.0
_NUMBER_BYTES: Final = 8


class SharedProcess:
    """One process and its programs.

    Args:
        bare: the process.
        owner: of all its applications.
        folders: that it may use.
        printed: takes a line of output of (application): of threads and C code, which has no known application, it goes to all.
        ended: called once when it has ended, before its programs are.
    """

    def __init__(
        self,
        bare: BareProcess,
        owner: bytes,
        folders: SharedFolders,
        printed: Callable[[str, str], None],
        ended: Callable[["SharedProcess", SharedEnd], None],
    ) -> None:
        self._bare, self.owner, self.folders = bare, owner, folders
        self._printed, self._on_end = printed, ended
        self.watch = bare.watch
        self.programs: dict[int, SharedProgramProcess] = {}
        self.idle_since = asyncio.get_running_loop().time()
        self.is_open = True
        self._number = 0
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._complaint = ""
        self._end: tuple[int, SharedEnd] | None = None
        self._is_silent = False
        self.over_rows = 0
        self._confined: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._bare.process.pid

    @property
    def rows_per_second(self) -> float:
        """Rows that pass the steps of all its applications."""
        return sum(program.rows_per_second for program in self.programs.values())

    async def open(self, share: ShareProcess) -> None:
        """Let the process confine itself, and wait until it takes programs. Raises `LaunchError`."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._bare.pair)
        self._writer.write(frame(FrameKind.CONTROL, TO_EXECUTOR.encode(share)))
        self._tasks = [asyncio.create_task(self._listen(reader)), asyncio.create_task(self._read_lines())]
        try:
            reason = await asyncio.wait_for(asyncio.shield(self._confined), LAUNCH_SECONDS)
        except TimeoutError:
            reason = f"it did not confine itself within {LAUNCH_SECONDS:.0f} s"
        if reason:
            self.close()
            raise LaunchError(f"no process for several applications could be started: {reason}")

    async def attach(self, application: str) -> BareProcess:
        """Begin a program. Raises `LaunchError`."""
        self._number += 1
        async with executor_channels(self.watch) as channels:
            number = self._number.to_bytes(_NUMBER_BYTES, "big")
            theirs = [channels.their_pair, channels.their_handover, channels.their_output]
            try:
                socket.send_fds(self._bare.handover, [number], theirs)
            except OSError as error:
                raise LaunchError(f"the process of several applications takes no more: {error.strerror}") from None
            program = self.programs[self._number] = SharedProgramProcess(application, self.pid)
            if self._end is not None:  # it ended meanwhile
                program.set_status(*self._end)
            return channels.given_to(program)

    def end_for(self, complaint: str, *, is_silent: bool = False) -> None:
        """End the process, which has exceeded a bound. `is_silent`: it did not answer, and its stack says where it was."""
        self._complaint, self._is_silent = complaint, is_silent
        with contextlib.suppress(ProcessLookupError):
            self._bare.process.kill()

    def close(self) -> None:
        """Let the process end by itself."""
        self.is_open = False
        if self._writer is not None:
            self._writer.close()

    async def wait(self) -> None:
        """Wait until the process is gone. A process that user code detached may hold its output: do not wait for it."""
        _, pending = await asyncio.wait(self._tasks, timeout=2 * _END_SECONDS)
        for task in pending:
            task.cancel()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            async for message in messages_of(reader):
                self._receive(message)
        except (OSError, RemoteProtocolError) as error:
            self._complaint = self._complaint or f"its agent's socket failed ({error})"
        finally:
            await self._ended()

    def _receive(self, message: ExecutorMessage) -> None:
        match message:
            case ProgramEnded(number) if (program := self.programs.pop(number, None)) is not None:
                program.set_status(0)
                if not self.programs:
                    self.idle_since = asyncio.get_running_loop().time()
            case RequestCompleted() if not self._confined.done():
                self._confined.set_result("")
            case RequestFailed() if not self._confined.done():
                self._confined.set_result(message.message)
            case _:
                pass

    async def _ended(self) -> None:
        self.is_open = False
        if not self._confined.done():
            self._confined.set_result("it ended")
        process = self._bare.process
        if self._writer is not None:
            self._writer.close()
        self._bare.handover.close()
        code = await end_within(process, _END_SECONDS)
        end = self._described(code)
        self._end = code, end
        self._on_end(self, end)
        for program in self.programs.values():
            program.set_status(code, end)
        self.watch.close()

    def _described(self, code: int) -> SharedEnd:
        """Say how it ended, and which application was at work."""
        text = self.watch.ended(code)
        names = {program.application for program in self.programs.values()}
        by_mark = {program.mark: program.application for program in self.programs.values() if program.mark}
        application = self.watch.blamed_application
        if not application and (self.watch.has_crashed or self._is_silent):
            application = by_mark.get(self.watch.code_mark, "")
        if len(names) == 1:
            (application,) = names
        reason = self.watch.reason or self._complaint
        return SharedEnd(text, reason, application if application in names else "", len(names))

    async def _read_lines(self) -> None:
        """Pass output on that belongs to the process."""
        async for line in lines_of(self._bare.stdout):
            for application in dict.fromkeys(program.application for program in self.programs.values()):
                self._printed(application, line)
