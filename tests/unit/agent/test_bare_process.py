"""The process that an agent keeps at hand: real ones, without user code."""

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_agent.executors import bare_process
from agiledart_agent.executors.bare_process import BareProcess, LaunchError, SpareProcesses, start_bare
from agiledart_agent.executors.executor_listener import ExecutorEvents
from agiledart_agent.executors.executor_pool import IDLE_SECONDS, STARTS_OF_SUCCESSOR, ExecutorPool


@pytest.fixture(autouse=True)
def without_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller waits until the rest of a start is done."""
    monkeypatch.setattr(bare_process, "REST_SECONDS", 0.0)


async def at_hand(spare: SpareProcesses) -> int:
    """The process id, once it is there."""
    spare.want()
    assert spare._beginning is not None
    await spare._beginning
    assert spare.pids
    return spare.pids[0]


def is_there(pid: int) -> bool:
    """Whether a process runs, or waits for its parent."""
    return Path(f"/proc/{pid}").exists()


def test_one_spare_process_is_ready_and_used_once(tmp_path: Path) -> None:
    started: list[BareProcess] = []

    async def start() -> BareProcess:
        started.append(await start_bare(str(tmp_path)))
        return started[-1]

    async def scenario() -> None:
        spare = SpareProcesses(start)
        assert spare.take() is None
        pid = await at_hand(spare)
        spare.want()
        assert spare._beginning is not None
        assert spare._beginning.done()
        assert len(started) == 1, "another one is started beside it"
        taken = spare.take()
        assert taken is not None
        assert taken.process.pid == pid
        assert spare.take() is None
        await spare.close()
        assert is_there(pid), "it belongs to the application that took it"
        await taken.end()
        assert not is_there(pid)

    asyncio.run(scenario())


def test_a_dead_spare_process_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        spare = SpareProcesses(lambda: start_bare(str(tmp_path)))
        first = await at_hand(spare)
        os.kill(first, signal.SIGKILL)
        await spare._processes[0].process.wait()
        assert spare.take() is None
        second = await at_hand(spare)
        assert second != first
        await spare.close()
        assert not is_there(second)
        assert spare.take() is None

    asyncio.run(scenario())


def test_the_spare_process_is_kept_while_an_application_has_checkpoints(tmp_path: Path) -> None:
    async def scenario(*, keeps_spare: bool) -> bool:
        pool = ExecutorPool(
            ExecutorEvents(*([cast(Any, None)] * 6)), cast(Any, None), str(tmp_path), keeps_spare=keeps_spare
        )
        running: dict[Any, Any] = pool._running
        running["a", 1, 0] = SimpleNamespace(by_epoch=False)
        pool._look_after_spare(100.0)
        pool.announce_start()
        assert pool._spares._beginning is None, "it is kept although no run restarts"
        running["b", 1, 0] = SimpleNamespace(by_epoch=True)
        pool._look_after_spare(101.0)
        if not keeps_spare:
            return pool._spares._beginning is not None
        pid = await at_hand(pool._spares)
        running.clear()  # as for a moment between two attempts
        pool._look_after_spare(101.0 + IDLE_SECONDS)
        assert pool._spares.pids == (pid,)
        pool._look_after_spare(101.1 + IDLE_SECONDS)
        await pool.close()
        return not is_there(pid)

    assert asyncio.run(scenario(keeps_spare=True))
    assert not asyncio.run(scenario(keeps_spare=False))


def test_an_announced_start_has_its_processes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bare_process, "REST_SECONDS", 3_600.0)

    async def scenario() -> None:
        pool = ExecutorPool(ExecutorEvents(*([cast(Any, None)] * 6)), cast(Any, None), str(tmp_path), keeps_spare=True)
        running: dict[Any, Any] = pool._running
        running["a", 1, 0] = SimpleNamespace(by_epoch=True)
        pool._look_after_spare(100.0)
        assert pool._spares.pids == ()
        pool.announce_start()
        assert pool._spares._beginning is not None
        await pool._spares._beginning
        announced = pool._spares.pids
        assert len(announced) == STARTS_OF_SUCCESSOR
        now = asyncio.get_running_loop().time()
        pool._look_after_spare(now)
        assert pool._spares.pids == announced
        pool._look_after_spare(now + IDLE_SECONDS + 1.0)
        assert pool._spares.pids == announced[:1], "an announced start that does not come holds processes"
        running.clear()
        await pool.close()
        assert not any(map(is_there, announced))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "told"), [(asyncio.CancelledError(), asyncio.CancelledError), (OSError(24, "none"), LaunchError)]
)
def test_a_failed_start_keeps_no_descriptor(
    error: BaseException, told: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*words: str, **more: Any) -> None:
        raise error

    monkeypatch.setattr(asyncio, "create_subprocess_exec", none)

    async def scenario() -> None:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(told):
            await start_bare(str(tmp_path))
        assert os.listdir("/proc/self/fd") == before

    asyncio.run(scenario())
