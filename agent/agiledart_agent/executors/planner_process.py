"""Supervisor of the planner process: starts it for a question, ends it when it is late, and when it was idle for a minute."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from agiledart_agent.driver import Driver
from agiledart_agent.executors.isolated_python import isolated_command, isolated_environment
from agiledart_agent.executors.planner_program import MAX_MESSAGE, framed
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Completed, Failed
from agiledart_node.wire.placement_effects import SolvePlacement
from agiledart_placement.plan_question import MAX_SECONDS, PlanAnswer, PlanQuestion

PROGRAM: Final = "agiledart_agent.executors.planner_program"

GRACE_SECONDS: Final = 1.0
"""Time after the end of a question's own time at which the process is ended: a solver may overrun its limit by far."""

START_SECONDS: Final = 30.0
"""Longest start of the process: it takes 0.3 s on a server, and far longer on a busy board."""

IDLE_SECONDS: Final = 60.0
"""Time without a question after which the process is ended, so that an idle agent needs no memory for it."""

MEMORY_BYTES: Final = 2 << 30
"""Most address space of the process. The integer programme took 300 MB at the most pairs that it takes, its libraries 1 GB."""

MAX_WAITING: Final = 16
"""Questions that wait for their turn; further ones are refused."""

_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""Each thread of the libraries reserves address space, and a planner shares its cores with the agent."""


class PlannerProcess:
    """The planner process of one agent, if it runs.

    Args:
        directory: in which it runs.
        program: module that it runs.
        idle_seconds: see `IDLE_SECONDS`.
    """

    def __init__(self, directory: str, program: str = PROGRAM, idle_seconds: float = IDLE_SECONDS) -> None:
        self._directory, self._program, self._idle_seconds = directory, program, idle_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._idle: asyncio.TimerHandle | None = None

    def register(self, driver: Driver, spawn: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Have the driver hand questions to the process."""

        async def answer(effect: SolvePlacement) -> None:
            try:
                driver.feed(Completed(effect.request, await self.solve(effect.question)))
            except OperationFailed as error:
                driver.feed(Failed(effect.request, str(error)))

        driver.on(SolvePlacement, lambda effect: spawn(answer(effect)))

    @property
    def pid(self) -> int | None:
        """Id of the process; None: none runs."""
        return None if self._process is None else self._process.pid

    async def solve(self, question: PlanQuestion) -> PlanAnswer:
        """Return the answer to a question. Raises OperationFailed: the process died, was late, or answered nonsense."""
        if self._waiting >= MAX_WAITING:
            raise OperationFailed(f"{MAX_WAITING} other plans are waiting")
        self._waiting += 1
        try:
            async with self._turn:
                self._stop_idle_timer()
                try:
                    answer = await self._ask(question)
                except BaseException:  # cancelled, too: an answer that comes later belongs to no question
                    await self._end()
                    raise
                self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._kill)
                return answer
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the process."""
        self._stop_idle_timer()
        await self._end()

    async def _ask(self, question: PlanQuestion) -> PlanAnswer:
        process = await self._started()
        assert process.stdin is not None
        seconds = min(MAX_SECONDS, question.seconds) + GRACE_SECONDS
        try:
            process.stdin.write(framed(msgspec.msgpack.encode(question)))
            async with asyncio.timeout(seconds):
                await process.stdin.drain()
                body = await _read(process)
            return msgspec.msgpack.decode(body, type=PlanAnswer)
        except TimeoutError:
            raise OperationFailed(f"the planner did not answer within {seconds:g} s") from None
        except (EOFError, ConnectionError):
            raise OperationFailed("the process of the planner ended") from None
        except msgspec.MsgspecError:
            raise OperationFailed("the planner's answer cannot be read") from None

    async def _started(self) -> asyncio.subprocess.Process:
        """Return the running process, or a new one that is ready."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        await self._end()  # it may have died between two questions
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *isolated_command(self._program), str(MEMORY_BYTES),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                cwd=self._directory, env={**isolated_environment(os.environ), **_ONE_THREAD}, start_new_session=True,
                limit=MAX_MESSAGE,
            )  # fmt: skip
        except OSError as error:
            raise OperationFailed(f"no process for the planner could be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(START_SECONDS):
                if await _read(process):
                    raise OperationFailed("the planner's answer cannot be read")
        except TimeoutError:
            raise OperationFailed(f"the planner did not start within {START_SECONDS:g} s") from None
        except (EOFError, ConnectionError):
            raise OperationFailed("the process of the planner ended at its start") from None
        return process

    def _kill(self) -> asyncio.subprocess.Process | None:
        """End the process and forget it. The event loop reaps it."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        return process

    async def _end(self) -> None:
        if (process := self._kill()) is not None:
            await process.wait()

    def _stop_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


async def _read(process: asyncio.subprocess.Process) -> bytes:
    """Return the next message of the process. Raises EOFError: it has ended, or sent too much."""
    assert process.stdout is not None
    try:
        size = int.from_bytes(await process.stdout.readexactly(4), "big")
        if size > MAX_MESSAGE:
            raise EOFError
        return await process.stdout.readexactly(size)
    except asyncio.IncompleteReadError:
        raise EOFError from None
