"""An agent's reaction to an executor's silence, memory and end."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agiledart_agent.executors.executor_watch import (
    GRACE_SECONDS,
    ExecutorWatch,
    ending,
    process_state,
    resident_memory,
)
from agiledart_executor.user_code.bounds import Bounds
from agiledart_executor.user_code.crash_report import EXIT_BOUND, CrashReporter

DUMP = b"""Current thread 0x00007f (most recent call first):
  File "/usr/lib/python3.11/re/__init__.py", line 166 in match
  File "<0123abcd>/taxi.py", line 42 in parse
  File "/x/agiledart_dataflow/chain.py", line 7 in run
  File "/x/agiledart_executor/programs/worker.py", line 300 in main

"""


@pytest.fixture
def watch() -> Iterator[ExecutorWatch]:
    """Of a process that is this one, silent since second 0."""
    made = ExecutorWatch()
    made.bounds = Bounds(5.0, 60.0)
    made._pid = os.getpid()
    previous = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    yield made
    signal.signal(signal.SIGUSR1, previous)
    made.close()


def test_a_silent_executor_is_probed_reported_once_and_then_ended(watch: ExecutorWatch) -> None:
    told = []
    for second in range(70):
        if second == 10:
            watch._crash_report.add(DUMP)
        text, is_over = watch.look(float(second), 0.0)
        if text:
            told.append((second, text, is_over))
        if is_over:
            break
    assert [(second, is_over) for second, _, is_over in told] == [(10, False), (60 + int(GRACE_SECONDS) + 1, True)]
    assert told[0][1] == "user code has not returned for 10 s: taxi.py:42 in parse"


def test_a_starting_executor_may_be_silent_for_longer(watch: ExecutorWatch) -> None:
    assert watch.look(29.0, 30.0) == ("", False)
    assert watch.look(9.0, 0.0) == ("", False)
    assert watch._asked_at == 9.0


def test_without_a_limit_silence_is_only_reported(watch: ExecutorWatch) -> None:
    watch.bounds = Bounds(5.0, 0.0)
    answers = [watch.look(float(second), 0.0) for second in range(500)]
    assert sum(bool(text) for text, _ in answers) == 1
    assert not any(is_over for _, is_over in answers)


def test_exits_are_reported_by_their_cause(watch: ExecutorWatch) -> None:
    assert watch.ended(7) == "ended (exit code 7: os._exit by user code or a library)"
    watch.look(0.0, 0.0)
    assert watch.ended(-signal.SIGKILL).startswith(
        "ended (killed by SIGKILL: by a user, or by the system because memory ran"
    )
    assert " MB of memory)" in watch.ended(-signal.SIGKILL)
    watch._crash_report.add(b"Fatal Python error: Segmentation fault\n\n" + DUMP)
    assert watch.ended(-11) == "crashed in taxi.py:42 in parse (Segmentation fault, killed by SIGSEGV)"
    assert ending(-200) == "killed by signal 200"


def test_heartbeats_and_a_reason_arrive_through_the_pipe() -> None:
    async def play() -> tuple[float, str]:
        watch = ExecutorWatch()
        watch.listen(os.getpid())
        words = CrashReporter(os.dup(watch.writing_end))
        watch.close_writing_end()
        words.report_alive()
        words.report_reason("clean: too much")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(60):
            while not watch.reason:  # noqa: ASYNC110  the pipe is read by the loop
                await asyncio.sleep(0)
        assert watch.ended(EXIT_BOUND) == "was stopped"
        watch.close()
        watch.close()
        return loop.time() - watch._since, watch.reason

    since, reason = asyncio.run(play())
    assert since < 5
    assert reason == "clean: too much"


def test_a_frozen_process_is_not_reported_as_hanging_user_code() -> None:
    """Stopped by a signal, and silent without being stopped: each in true words."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    watch = ExecutorWatch()
    try:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()
        watch._pid = sleeper.pid
        assert watch._silence(9.0).startswith("its process has not run for 9 s: it does not answer.")
        os.kill(sleeper.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
        assert watch._silence(9.0) == (
            "its process was stopped from outside (SIGSTOP, or a debugger) 9 s ago; "
            f"kill -CONT {sleeper.pid} resumes it"
        )
        assert watch._silence(12.0, is_over=True) == (
            "its process was frozen from outside (SIGSTOP, or a debugger) for 12 s"
        )
        assert process_state(2**30) == ""
    finally:
        sleeper.kill()
        sleeper.communicate()
        watch.close()


def test_memory_of_an_ended_process_is_zero() -> None:
    assert resident_memory(2**30) == 0
    assert resident_memory(os.getpid()) > 1_000_000
