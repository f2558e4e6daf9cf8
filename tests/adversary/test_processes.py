"""Processes that users' code starts count with their executor and end with it, also outside its process group."""

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agiledart_agent.executors.descendants import MARK, become_reaper, identity_of
from agiledart_agent.executors.executor_pool import ExecutorPool
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_executor.user_code.bounds import MB, Bounds
from tests.adversary.findings import probe, twin

SECONDS = 30.0

LEAVES_A_DAEMON = """
import os, sys, time
from pathlib import Path
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        Path(sys.argv[1]).write_text(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""

CHILD_TAKES_MEMORY = """
import os, sys, time
from pathlib import Path
if os.fork() == 0:
    held = bytearray(os.urandom(1 << 20)) * int(sys.argv[2])
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(600)
time.sleep(600)
"""


def eventually(is_so: Callable[[], Any], seconds: float = SECONDS) -> Awaitable[None]:
    async def look() -> None:
        async with asyncio.timeout(seconds):
            while not is_so():  # the kernel sends no event for it
                await asyncio.to_thread(select.select, [], [], [], 0.02)

    return look()


def number_in(path: Path) -> int:
    return int(path.read_text() or 0) if path.exists() else 0


@pytest.fixture(autouse=True)
def reaper() -> None:
    become_reaper()


class _Writer:
    def close(self) -> None:
        """Nothing to close."""


async def started(code: str, *words: str) -> ExecutorProcess:
    """Return an executor whose process runs this code."""
    executor = ExecutorProcess("app", 1, 0, cast(Any, None), cast(Any, _Writer()))
    executor.process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, *words, env={**os.environ, MARK: executor.watch.mark}, start_new_session=True
    )
    executor.watch._pid = executor.process.pid
    return executor


def runs(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


@probe(12)
def test_a_daemon_of_users_code_ends_with_its_application(tmp_path: Path) -> None:
    async def work() -> None:
        pool = ExecutorPool(cast(Any, None), cast(Any, None), str(tmp_path))
        executor = await started(LEAVES_A_DAEMON, str(tmp_path / "pid"))
        await eventually(lambda: number_in(tmp_path / "pid"))
        daemon = number_in(tmp_path / "pid")
        assert runs(daemon)
        executor.process.kill()
        await pool._ended(executor)
        await eventually(lambda: not runs(daemon))

    asyncio.run(work())


@twin(12)
def test_a_process_of_another_application_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        pool = ExecutorPool(cast(Any, None), cast(Any, None), str(tmp_path))
        first, second = (
            await started("import time; time.sleep(600)"),
            await started(LEAVES_A_DAEMON, str(tmp_path / "pid")),
        )
        await eventually(lambda: number_in(tmp_path / "pid"))
        first.process.kill()
        await pool._ended(first)
        assert runs(number_in(tmp_path / "pid"))
        second.process.kill()
        await pool._ended(second)

    asyncio.run(work())


@probe(13)
def test_the_memory_of_child_processes_counts(tmp_path: Path) -> None:
    async def work() -> None:
        pool = ExecutorPool(cast(Any, None), cast(Any, None), str(tmp_path))
        executor = await started(CHILD_TAKES_MEMORY, str(tmp_path / "pid"), "150")
        executor.watch.bounds = Bounds(memory_bytes=100 * MB)
        await eventually(lambda: number_in(tmp_path / "pid"))
        looks = [executor.watch.look(0.0, 600.0) for _ in range(3)]
        assert [is_over for _, is_over in looks][1:] == [True, True]
        assert "more than the 100 MB" in looks[1][0]
        executor.process.kill()
        await pool._ended(executor)
        await eventually(lambda: not runs(number_in(tmp_path / "pid")))

    asyncio.run(work())


@twin(13)
def test_a_process_below_its_bound_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        pool = ExecutorPool(cast(Any, None), cast(Any, None), str(tmp_path))
        executor = await started(CHILD_TAKES_MEMORY, str(tmp_path / "pid"), "10")
        executor.watch.bounds = Bounds(memory_bytes=400 * MB)
        await eventually(lambda: number_in(tmp_path / "pid"))
        assert [executor.watch.look(0.0, 600.0) for _ in range(3)] == [("", False)] * 3
        executor.process.kill()
        await pool._ended(executor)

    asyncio.run(work())


@twin(12)
def test_the_same_number_is_not_the_same_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    first = identity_of(process.pid)
    process.wait()
    assert first is not None
    assert identity_of(process.pid) != first
