"""The pool of executor processes, with processes that are none."""

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_agent.executors.bare_process import LaunchError, executor_environment
from agiledart_agent.executors.executor_listener import ExecutorEvents
from agiledart_agent.executors.executor_pool import ExecutorPool
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_executor.wire.agent_messages import InstanceFailure, InstanceName


class FakeProcess:
    """Ends on request."""

    pid = 2**30

    async def wait(self) -> int:
        return 0


class FakeWriter:
    """Remembers whether the agent released it."""

    closed = False

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        """A message without a receiver."""


class SlowPool(ExecutorPool):
    """Its processes start when a test says so."""

    def __init__(self) -> None:
        super().__init__(cast(ExecutorEvents, None), cast(Any, None), "/")
        self.go = asyncio.Event()
        self.started: list[ExecutorProcess] = []

    async def _spawn(
        self, application: str, version: int, number: int, slot: int, part: bytes, *, waits: bool = False
    ) -> ExecutorProcess:
        await self.go.wait()
        executor = ExecutorProcess(application, version, slot, cast(Any, FakeProcess()), cast(Any, FakeWriter()))
        self.started.append(executor)
        return executor


def test_an_executor_stopped_while_starting_does_not_stay() -> None:
    async def play() -> SlowPool:
        pool = SlowPool()
        launch = asyncio.create_task(pool.launch("taxi", 1, 7, {0: [InstanceName(0, 0)]}, b""))
        for _ in range(5):
            await asyncio.sleep(0)
        pool.stop("taxi", 1)
        pool.go.set()
        with pytest.raises(LaunchError, match="was stopped while it started"):
            await launch
        return pool

    pool = asyncio.run(play())
    assert pool.started[0].writer.is_closing()
    assert pool.processes == ()


def test_an_executor_restarted_after_a_stop_gets_a_new_process() -> None:
    async def play() -> SlowPool:
        pool = SlowPool()
        pool.go.set()
        first = await pool._executor("taxi", 1, 7, 0, b"")
        pool.stop("taxi", 1)
        again = await pool._executor("taxi", 1, 7, 0, b"")
        assert again is not first
        await pool._gone(first, "")
        return pool

    pool = asyncio.run(play())
    assert pool.processes == (pool.started[1],)


def test_a_start_after_a_stop_does_not_get_the_process_of_the_start_before() -> None:
    """A scheduler that finds a full node halts the others at once and plans again: the same run may come back meanwhile."""

    async def play() -> None:
        pool = SlowPool()
        first = asyncio.create_task(pool._executor("taxi", 1, 7, 0, b"first plan"))
        await asyncio.sleep(0)
        pool.stop("taxi", 1)
        again = asyncio.create_task(pool._executor("taxi", 1, 7, 0, b"second plan"))
        await asyncio.sleep(0)
        pool.go.set()
        assert (await first).ending
        assert not (await again).ending
        assert pool.processes == (again.result(),)

    asyncio.run(play())


def test_a_process_starts_once_the_folders_of_an_earlier_start_are_deleted() -> None:
    """The deletion would take its own folders, too."""

    class Configured(Exception):
        """The process is about to begin."""

    async def play() -> None:
        is_deleted = asyncio.Event()

        async def until_forgotten(application: str, version: int) -> None:
            assert (application, version) == ("taxi", 1)
            await is_deleted.wait()

        def configuration(*_: object) -> Any:
            raise Configured

        pool = ExecutorPool(cast(Any, None), configuration, "/", until_forgotten=until_forgotten)
        starting = asyncio.create_task(pool._executor("taxi", 1, 7, 0, b""))
        for _ in range(9):
            await asyncio.sleep(0)
        assert not starting.done()
        is_deleted.set()
        with pytest.raises(Configured):
            await starting

    asyncio.run(play())


def test_no_log_is_opened_before_the_ended_process_is_gone() -> None:
    """It flushes its sinks and its sources' logs when it ends, which the next one would find half written."""

    async def play() -> None:
        pool = SlowPool()
        pool.go.set()
        first = await pool._executor("taxi", 1, 7, 0, b"")
        pool.stop("taxi", 1)
        launch = asyncio.create_task(pool.launch("taxi", 1, 7, {0: [InstanceName(0, 0)]}, b""))
        other = asyncio.create_task(pool.launch("another", 1, 7, {0: [InstanceName(0, 0)]}, b""))
        for _ in range(9):
            await asyncio.sleep(0)
        (second, stranger) = pool.processes
        assert (second.instances, stranger.instances) == ([], [InstanceName(0, 0)])
        await pool._ended(first)
        for _ in range(9):
            await asyncio.sleep(0)
        assert second.instances == [InstanceName(0, 0)]
        launch.cancel()
        other.cancel()

    asyncio.run(play())


def test_a_process_that_dies_while_waiting_for_its_predecessor_is_not_used() -> None:
    async def play() -> None:
        pool = SlowPool()
        pool._events = cast(ExecutorEvents, SimpleNamespace(broke=print, application_ended=lambda *_: None))
        pool.go.set()
        first = await pool._executor("taxi", 1, 7, 0, b"")
        pool.stop("taxi", 1)
        launch = asyncio.create_task(pool.launch("taxi", 1, 7, {0: [InstanceName(0, 0)]}, b""))
        for _ in range(9):
            await asyncio.sleep(0)
        (second,) = pool.processes
        await pool._gone(second, "was killed")
        await pool._ended(first)
        for _ in range(9):
            await asyncio.sleep(0)
        (third,) = pool.processes
        assert third is not second
        assert (second.instances, third.instances) == ([], [InstanceName(0, 0)])
        launch.cancel()

    asyncio.run(play())


@pytest.mark.parametrize(("by_epoch", "lost"), [(False, [1]), (True, [0, 1])])
def test_finished_instances_are_lost_too_while_an_epoch_may_need_them(by_epoch: bool, lost: list[int]) -> None:
    told: list[int] = []
    events = cast(
        ExecutorEvents, SimpleNamespace(broke=lambda *of: told.append(of[-1].instance.stage), application_ended=print)
    )
    pool = ExecutorPool(events, cast(Any, None), "/")
    executor = ExecutorProcess("taxi", 1, 0, cast(Any, FakeProcess()), cast(Any, FakeWriter()), by_epoch=by_epoch)
    executor.instances += [InstanceName(0, 0), InstanceName(1, 0)]
    executor.finished.add(InstanceName(0, 0))
    asyncio.run(pool._gone(executor, "was killed"))
    assert told == lost


def test_a_process_that_ends_with_unread_messages_is_reported_by_exit_code() -> None:
    """The pair is reset then; `Connection reset by peer` would say nothing about the process (its exit code is 0 here)."""
    told: list[InstanceFailure] = []

    async def play() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        events = cast(ExecutorEvents, SimpleNamespace(broke=lambda *of: told.append(of[-1]), application_ended=print))
        pool = ExecutorPool(events, cast(Any, None), "/")
        executor = ExecutorProcess("taxi", 1, 0, cast(Any, FakeProcess()), writer)
        executor.labels[0] = "trips"
        executor.instances.append(InstanceName(0, 0))
        writer.write(b"never read")
        theirs.close()
        with pytest.raises(ConnectionError):
            await reader.read(1)
        await pool._listen(executor, reader)

    asyncio.run(play())
    (broke,) = told
    assert broke.message.startswith("the process of trips ended")


def test_executors_have_no_token_allocate_sparingly_and_send_no_telemetry() -> None:
    made = executor_environment({"PATH": "/bin", "AGILEDART_TOKEN": "secret", "MALLOC_ARENA_MAX": "8"})
    modules = made.pop("PYTHONPATH").split(":")
    assert any(Path(folder, "agiledart_executor").is_dir() for folder in modules)
    assert made == {
        "PYTHONNOUSERSITE": "1", "ORT_DISABLE_TELEMETRY": "1",
        "PATH": "/bin", "MALLOC_ARENA_MAX": "8", "ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONUNBUFFERED": "1"
    }  # fmt: skip
