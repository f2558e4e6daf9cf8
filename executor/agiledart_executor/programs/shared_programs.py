"""Executor programs of several applications of one owner in this process; each has a socket of its own to the agent.

The process confines itself before the first program, for the folders of all: Landlock never widens what a process may use. They
have working directory, `TMPDIR`, environment and memory in common. Output is divided (`application_output.py`).
"""

import asyncio
import contextlib
import contextvars
import os
import socket
import traceback
import weakref
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any, Final, cast

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.user_code.user_limits import UserLimits
from agiledart_executor.process.application_output import OUTPUT, divide_output
from agiledart_executor.process.python_gc import collect_rarely
from agiledart_executor.programs.report_texts import bounded_text, describe_error
from agiledart_executor.programs.surroundings import LookAtCall, OwnProcessNeeded
from agiledart_executor.user_code.bounds import Bounds, bind_process
from agiledart_executor.user_code.confinement import Confinement
from agiledart_executor.user_code.crash_report import CrashReporter
from agiledart_executor.user_code.user_builder import decode_bundle, modules_of
from agiledart_executor.user_code.user_modules import UserModules, forget_private
from agiledart_executor.user_code.watchdog import UserCall, Watchdog
from agiledart_executor.wire.agent_messages import (
    Configure,
    ProgramEnded,
    RequestCompleted,
    RequestFailed,
    ShareProcess,
)
from agiledart_kernel.errors import AgileDartError

PROGRAM_DESCRIPTORS: Final = 3
"""Descriptors of a program: its end of a socket pair to the agent, its end of a pair for connections, its output."""

NUMBER_BYTES: Final = 8

_PROGRAM: Final[contextvars.ContextVar["SharedProgram | None"]] = contextvars.ContextVar("program", default=None)

Serve = Callable[[socket.socket, socket.socket, "SharedProgram"], Coroutine[Any, Any, None]]
"""(socket to the agent, pair for connections, the program) → the program until its agent's end closes."""


class SharedProgram:
    """One executor program of this process, as its surroundings.

    Args:
        number: given by the agent.
        share: of the process.
        has_heartbeat: as of `Surroundings`, for all programs of the process.
    """

    def __init__(self, number: int, share: ShareProcess, has_heartbeat: Callable[[int], bool]) -> None:
        self.number, self._bounds, self.has_heartbeat = number, share.bounds, has_heartbeat
        self.root, self.run = Path(share.root), ""
        self._application = ""
        self._modules: UserModules | None = None
        self._look: LookAtCall | None = None
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def configure(self, configuration: Configure) -> "SharedProgram":
        """Take the identity of the run; return this object."""
        self._application = configuration.application
        self.run = f"{configuration.application}.{configuration.version}.{self.number}"
        return self

    def watch(self, look: LookAtCall) -> None:
        """Let the process's watchdog look at the calls, too."""
        self._look = look

    @property
    def call(self) -> UserCall | None:
        """Call of user code that the program is busy with."""
        call = self._look() if self._look is not None else None
        return None if call is None else UserCall(call.name, call.number, self._application)

    def confine(self, part: DeploymentPart) -> None:
        """Do nothing: the process is confined."""

    def take_limits(self, limits: UserLimits) -> Bounds:
        """Return the process's bounds. Raises `OwnProcessNeeded` when the application has limits of its own."""
        if limits != UserLimits():
            raise OwnProcessNeeded("it has limits of its own (Topology.limit)")
        return self._bounds

    def mark_of(self, bundle: bytes) -> str:
        """Return the mark of the modules, which are this program's alone."""
        self._modules = modules_of(decode_bundle(bundle), self.run)
        return self._modules.mark

    def loaded(self) -> None:
        """Do nothing: the objects of one program are not frozen."""

    def close(self) -> None:
        """Look at the calls no longer, and release the modules."""
        self._look = None
        if self._modules is not None:
            forget_private(self._modules)


class SharedPrograms:
    """All executor programs of this process.

    Args:
        share: the agent's first message.
        crash_reporter: of the process.
        handover: brings programs.
        send: sends a message to the agent.
        serve: runs a program.
    """

    def __init__(
        self,
        share: ShareProcess,
        crash_reporter: CrashReporter,
        handover: socket.socket,
        send: Callable[[ProgramEnded | RequestCompleted | RequestFailed], None],
        serve: Serve,
    ) -> None:
        self._share, self._handover, self._send, self._serve = share, handover, send, serve
        self._programs: dict[int, SharedProgram] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._heartbeat = 0
        self._watchdog = Watchdog("", share.bounds, self._call, crash_reporter, is_shared=True)

    def open(self) -> None:
        """Confine the process, take programs, and say so."""
        try:
            self._confine()
        except (AgileDartError, OSError) as error:
            self._send(RequestFailed(0, bounded_text(describe_error(error))))
            return
        self._send(RequestCompleted(0, ""))

    def _confine(self) -> None:
        share = self._share
        bind_process(share.bounds)
        if share.closed:
            Confinement([Path(path) for path in share.closed], [Path(path) for path in share.own]).enforce()
        os.chdir(share.folder)
        divide_output()
        collect_rarely()
        self._loop.set_task_factory(_make_task)
        self._loop.add_reader(self._handover, self._take)
        self._watchdog.start()  # a thread, so after the confinement

    async def close(self) -> None:
        """Wait for the ends of all programs: their agent has closed their sockets, too."""
        self._loop.remove_reader(self._handover)
        self._watchdog.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def has_heartbeat(self, number: int) -> bool:
        """Return whether a program has sent the heartbeat with this number; else the caller sends it."""
        has_heartbeat, self._heartbeat = number == self._heartbeat, number
        return has_heartbeat

    def _call(self) -> UserCall | None:
        """Return the call of user code that keeps the main thread busy, whosever it is."""
        for program in tuple(self._programs.values()):
            if (call := program.call) is not None:
                return call
        return None

    def _take(self) -> None:
        """Take one program."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._handover, NUMBER_BYTES, PROGRAM_DESCRIPTORS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if len(descriptors) != PROGRAM_DESCRIPTORS:
            for descriptor in descriptors:
                os.close(descriptor)
            if not data:  # the agent has closed its end
                self._loop.remove_reader(self._handover)
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        context = contextvars.copy_context()
        program = SharedProgram(int.from_bytes(data, "big"), self._share, self.has_heartbeat)
        self._programs[program.number] = program
        context.run(_PROGRAM.set, program)
        context.run(OUTPUT.set, descriptors[2])
        pair, connections = socket.socket(fileno=descriptors[0]), socket.socket(fileno=descriptors[1])
        task = context.run(self._loop.create_task, self._run(program, pair, connections, descriptors[2]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, program: SharedProgram, pair: socket.socket, connections: socket.socket, output: int) -> None:
        """Run a program; whatever it raises, the others go on."""
        pair.setblocking(False)
        connections.setblocking(False)
        try:
            await self._serve(pair, connections, program)
        except Exception:  # noqa: BLE001  a fault of the engine; its application is restarted
            traceback.print_exc()
        finally:
            self._programs.pop(program.number, None)
            self._loop.remove_reader(connections)
            connections.close()
            own = asyncio.current_task()
            for task in tuple(program.tasks):
                if task is not own:
                    task.cancel()
            os.close(output)
            with contextlib.suppress(OSError):
                self._send(ProgramEnded(program.number))


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **more: Any
) -> asyncio.Task[Any]:
    """Make a task; the program whose code makes it cancels it at its end."""
    task: asyncio.Task[Any] = asyncio.Task(cast(Coroutine[Any, Any, Any], work), loop=loop, **more)
    if (program := _PROGRAM.get()) is not None:
        program.tasks.add(task)
    return task
