"""The nursery: a real one, whose executors are real processes without user code."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from agiledart_agent.executors import executor_nursery
from agiledart_agent.executors.bare_process import BareProcess, LaunchError, executor_channels, start_bare
from agiledart_agent.executors.child_process import ForkedProcess
from agiledart_agent.executors.executor_listener import ExecutorEvents
from agiledart_agent.executors.executor_nursery import ExecutorNursery
from agiledart_agent.executors.executor_pool import IDLE_SECONDS, ExecutorPool
from agiledart_agent.executors.executor_watch import ExecutorWatch
from agiledart_agent.executors.nursery_trial import try_nursery

WAIT_SECONDS = 60.0


class Place:
    """A nursery and what it says."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.nursery = ExecutorNursery(str(folder), is_wanted=True, warn=self.said.append)

    async def start(self) -> BareProcess:
        return await asyncio.wait_for(self.nursery.start(), WAIT_SECONDS)


def run(scenario: Callable[[Place], Awaitable[None]], folder: Path) -> None:
    async def whole() -> None:
        place = Place(folder)
        try:
            await scenario(place)
        finally:
            await place.nursery.close()

    asyncio.run(whole())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_there(pid: int) -> bool:
    """Return whether a process runs, or waits for its parent."""
    return Path(f"/proc/{pid}").exists()


def test_executors_are_forked_and_end_with_their_pair(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        first, second = await place.start(), await place.start()
        assert first.process.pid != second.process.pid
        assert {parent_of(bare.process.pid) for bare in (first, second)} == {place.nursery.pid}
        for bare in (first, second):
            await until(lambda pid=bare.process.pid: os.getsid(pid) == pid)
            assert os.readlink(f"/proc/{bare.process.pid}/cwd") == str(tmp_path)
        first.pair.close()
        assert await asyncio.wait_for(first.process.wait(), WAIT_SECONDS) in (0, -signal.SIGKILL)
        assert second.process.returncode is None
        await second.end()
        assert not is_there(second.process.pid)
        assert place.said == []

    run(scenario, tmp_path)


def targets_of(pid: int) -> set[str]:
    """Return the sockets and pipes of a process."""
    links: set[str] = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return {link for link in links if link.startswith(("socket:", "pipe:"))}


async def until(is_so: Callable[[], bool]) -> None:
    end = asyncio.get_running_loop().time() + WAIT_SECONDS
    while not is_so():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0)


def test_an_executor_has_no_descriptor_of_the_nursery_or_of_another_executor(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        first, second = await place.start(), await place.start()

        def is_separate() -> bool:
            strangers = targets_of(place.nursery.pid) | targets_of(first.process.pid)
            return not strangers & targets_of(second.process.pid)

        await until(is_separate)  # a child closes what it inherited first of all
        await first.end()
        await second.end()

    run(scenario, tmp_path)


def test_two_executors_draw_other_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drawing.py").write_text(
        "import random, os, ssl\nfrom agiledart_executor.programs import nursery, worker\n"
        "def main():\n    print(random.random(), os.urandom(8).hex(), ssl.RAND_bytes(8).hex(), flush=True)\n    return 0\n"
        "worker.main = main\nnursery.main()\n"
    )
    monkeypatch.setattr(executor_nursery, "PROGRAM", "drawing")
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario(place: Place) -> None:
        lines = []
        for _ in range(2):
            executor = await place.start()
            lines.append((await executor.stdout.readline()).split())
            assert await executor.process.wait() == 0
            await executor.end()
        assert len(lines[0]) == 3
        assert not set(lines[0]) & set(lines[1])

    run(scenario, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_signal_that_ended_an_executor_is_known(tmp_path: Path, number: signal.Signals) -> None:
    async def scenario(place: Place) -> None:
        executor = await place.start()
        os.kill(executor.process.pid, number)
        assert await asyncio.wait_for(executor.process.wait(), WAIT_SECONDS) == -number
        with pytest.raises(ProcessLookupError):
            executor.process.kill()

    run(scenario, tmp_path)


def test_executors_outlive_their_nursery_and_another_one_is_started(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        executor = await place.start()
        before = place.nursery.pid
        os.kill(before, signal.SIGKILL)
        await until(lambda: place.nursery._socket is None)
        later = await place.start()
        assert place.nursery.pid != before
        assert parent_of(later.process.pid) == place.nursery.pid
        assert executor.process.returncode is None
        executor.process.kill()
        assert await asyncio.wait_for(executor.process.wait(), WAIT_SECONDS) == -signal.SIGKILL
        await later.end()
        assert place.said == []

    run(scenario, tmp_path)


def test_a_nursery_that_dies_during_a_request_costs_no_start(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        running = await place.start()
        os.kill(place.nursery.pid, signal.SIGSTOP)
        starting = [asyncio.create_task(place.start()) for _ in range(3)]
        await until(lambda: bool(place.nursery._requests))
        os.kill(place.nursery.pid, signal.SIGKILL)
        executors = await asyncio.gather(*starting)
        assert {parent_of(executor.process.pid) for executor in executors} == {os.getpid()}
        assert ["without their nursery" in text for text in place.said] == [True]
        assert running.process.returncode is None
        for executor in (running, *executors):
            await executor.end()

    run(scenario, tmp_path)


def test_a_nursery_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_nursery, "ANSWER_SECONDS", 0.2)

    async def scenario(place: Place) -> None:
        place.nursery.warm_up()
        starting = place.nursery._starting
        assert starting is not None
        await starting
        frozen = place.nursery.pid
        os.kill(frozen, signal.SIGSTOP)
        executor = await place.start()
        assert parent_of(executor.process.pid) == os.getpid()
        assert not is_there(frozen)
        assert "it does not answer" in place.said[0]
        await executor.end()

    run(scenario, tmp_path)


def test_a_nursery_with_threads_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nfrom agiledart_executor.programs import nursery\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\nnursery.main()\n"
    )
    monkeypatch.setattr(executor_nursery, "PROGRAM", "threaded")
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario(place: Place) -> None:
        executor = await place.start()
        assert parent_of(executor.process.pid) == os.getpid()
        assert "its imports started 1 threads" in place.said[0]
        await executor.end()

    run(scenario, tmp_path)


def test_a_program_that_does_not_exist_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_nursery, "PROGRAM", "agiledart_executor.programs.missing")

    async def scenario(place: Place) -> None:
        for _ in range(2):
            await (await place.start()).end()
        assert ["its process ended" in text for text in place.said] == [True]

    run(scenario, tmp_path)


def test_many_requests_at_once_give_as_many_executors(tmp_path: Path) -> None:
    async def scenario(place: Place) -> None:
        executors = await asyncio.gather(*(place.start() for _ in range(20)))
        assert len({executor.process.pid for executor in executors}) == 20
        await asyncio.gather(*(executor.end() for executor in executors))

    run(scenario, tmp_path)


@pytest.mark.slow
def test_a_thousand_requests_at_once_are_all_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ending.py").write_text(
        "from agiledart_executor.programs import nursery, worker\nworker.main = lambda: 7\nnursery.main()\n"
    )
    monkeypatch.setattr(executor_nursery, "PROGRAM", "ending")
    monkeypatch.setattr(executor_nursery, "ANSWER_SECONDS", WAIT_SECONDS)
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario(place: Place) -> None:
        async def one() -> int:
            executor = await place.start()
            code = await executor.process.wait()
            await executor.end()
            return code

        before = targets_of(os.getpid())
        codes = await asyncio.gather(*(one() for _ in range(1_000)))
        assert set(codes) == {7}
        assert place.said == []
        assert (place.nursery._requests, place.nursery._children, place.nursery._codes) == ({}, {}, {})
        await place.nursery.close()
        await until(lambda: targets_of(os.getpid()) <= before)

    run(scenario, tmp_path)


def test_without_descriptors_the_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(place: Place) -> None:
        await (await place.start()).end()

        def refused() -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(os, "pipe", refused)
        with pytest.raises(LaunchError, match="no process for user code could be started: Too many open files"):
            await place.start()
        monkeypatch.undo()
        await (await place.start()).end()

    run(scenario, tmp_path)


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_refused_start_leaves_no_descriptor(loop_factory: Callable[[], Any], is_shared: bool) -> None:
    async def refused(watch: ExecutorWatch | None) -> None:
        async with executor_channels(watch) as channels:
            assert (channels.watch is watch) == is_shared
            raise OSError(24, "Too many open files")

    async def scenario() -> None:
        watch = ExecutorWatch() if is_shared else None
        before = targets_of(os.getpid())
        with pytest.raises(LaunchError, match="could be started: Too many open files"):
            await refused(watch)
        await until(lambda: targets_of(os.getpid()) == before)
        if watch is not None:
            watch.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())


def test_a_start_without_the_nursery_works_on_the_loop_of_the_agent(tmp_path: Path) -> None:
    async def scenario() -> None:
        executor = await start_bare(str(tmp_path))
        assert executor.process.returncode is None
        executor.pair.close()
        assert await asyncio.wait_for(executor.process.wait(), WAIT_SECONDS) in (0, -signal.SIGKILL)
        assert await executor.stdout.read() == b""
        await executor.end()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def test_a_fork_that_the_system_refuses_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "refusing.py").write_text(
        "import os\nfrom agiledart_executor.programs import nursery\nfork, forks = os.fork, []\n"
        "def refuse_second():\n    forks.append(0)\n"
        "    if len(forks) == 2:\n        raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "    return fork()\n"
        "os.fork = refuse_second\nnursery.main()\n"
    )
    monkeypatch.setattr(executor_nursery, "PROGRAM", "refusing")
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario(place: Place) -> None:
        first = await place.start()
        with pytest.raises(LaunchError, match="could be started: Resource temporarily unavailable"):
            await place.start()
        third = await place.start()
        assert {parent_of(executor.process.pid) for executor in (first, third)} == {place.nursery.pid}
        assert first.process.returncode is None
        assert place.said == []
        await first.end()
        await third.end()

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("", ""),
        ("raise SystemExit(1)", "their nursery ends at its start"),
        (
            "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
            "from agiledart_executor.programs import nursery\nnursery.main()\n",
            "the imports of their nursery started 1 threads",
        ),
        ("import signal\nsignal.pause()", "their nursery did not start within 2 s"),
    ],
    ids=["usable", "ends", "threads", "silent"],
)
def test_a_trial_returns_why_executors_cannot_be_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, reason: str
) -> None:
    if program:
        (tmp_path / "tried.py").write_text(program)
        monkeypatch.setattr(executor_nursery, "PROGRAM", "tried")
        monkeypatch.syspath_prepend(tmp_path)
    assert try_nursery(2.0 if "not start" in reason else WAIT_SECONDS) == reason


def test_the_pool_ends_its_nursery_a_minute_after_the_last_executor(tmp_path: Path) -> None:
    async def scenario() -> None:
        pool = ExecutorPool(ExecutorEvents(*([cast(Any, None)] * 6)), cast(Any, None), str(tmp_path), forks=True)
        running: dict[Any, Any] = pool._running
        running["a", 1, 0] = SimpleNamespace()
        await pool._look_after_nursery(100.0)
        starting = pool._nursery._starting
        assert starting is not None
        await starting
        pid = pool._nursery.pid
        running.clear()
        await pool._look_after_nursery(100.0 + IDLE_SECONDS)
        assert pool._nursery.pid == pid
        await pool._look_after_nursery(100.1 + IDLE_SECONDS)
        assert pool._nursery.pid == 0
        assert not is_there(pid)
        await pool.close()

    asyncio.run(scenario())


def test_the_end_of_a_process_without_a_report_counts_as_a_kill(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
        handle = os.pidfd_open(process.pid)
        child = ForkedProcess(process.pid, handle)
        await process.communicate(b"")  # its parent takes the status
        assert await asyncio.wait_for(child.wait(), WAIT_SECONDS) == -signal.SIGKILL

    asyncio.run(scenario())
