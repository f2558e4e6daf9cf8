"""User code that hangs or hogs: when it is reported, when it is ended, and where it was."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, collect, sliding, sum_of
from agiledart_dataflow.operators.chain import RowChain
from agiledart_dataflow.operators.loop_text import LoopLine, RowStep
from agiledart_dataflow.user_code.user_limits import UserLimits, user_limits
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_executor.user_code.bounds import Bounds, ResidentMemory, default_memory, machine_memory
from agiledart_executor.user_code.code_location import CodeLocation, locate_frame, locate_thread
from agiledart_executor.user_code.crash_report import (
    ALIVE,
    ASK_SIGNAL,
    EXIT_BOUND,
    CrashReport,
    CrashReporter,
    PendingCall,
)
from agiledart_executor.user_code.watchdog import HangDetector, OverdueCall, UserCall, Watchdog
from agiledart_kernel.errors import ConfigurationError

CALL = UserCall("clean", 1)


def judged(
    judge: HangDetector, now: float, call: UserCall | None = CALL, progress_key: tuple[int, ...] = (1,)
) -> OverdueCall | None:
    """One look."""
    return judge.look(now, call, lambda: progress_key)


def test_a_call_that_does_not_return_is_reported_ever_less_often_then_ended() -> None:
    judge = HangDetector(Bounds(5.0, 60.0))
    verdicts = [(now / 2, judged(judge, now / 2)) for now in range(123)]
    told = [(now, verdict.must_end) for now, verdict in verdicts if verdict is not None]
    assert told[:3] == [(5.5, False), (15.5, False), (45.5, False)]
    assert told[3] == (60.5, True)


def test_another_record_or_call_restarts_the_timeout() -> None:
    judge = HangDetector(Bounds(5.0, 60.0))
    for second in range(200):
        assert judged(judge, second, progress_key=(second // 4,)) is None
    for second in range(200, 400):
        assert judged(judge, second, UserCall("clean", second // 4)) is None
    for second in range(400, 600):
        assert judged(judge, second, None) is None


def test_without_a_limit_no_call_is_ended() -> None:
    judge = HangDetector(Bounds(5.0, 0.0))
    assert not any(verdict.must_end for second in range(5_000) if (verdict := judged(judge, second)) is not None)


def in_a_chain() -> CodeLocation:
    """Where user code is that a generated loop calls."""
    made: dict[str, object] = {"lines": {4: LoopLine(0, "x")}, "steps": ("parse",)}
    text = "def run(f, rows):\n out = []\n for x in rows:\n  out.append(f(x))\n return out\n"
    exec(compile(text, "<stage parse+clean>", "exec"), made)
    caught: list[CodeLocation] = []

    def user(row: str) -> str:
        caught.append(locate_frame(sys._getframe()))
        return row

    made["run"](user, ["a row"])  # type: ignore[operator]  # made from text
    return caught[0]


def test_the_frames_identify_step_place_and_record() -> None:
    where = in_a_chain()
    assert where.step == "parse"
    assert where.record == "'a row'"
    assert re.fullmatch(r"test_watchdog.py:\d+ in user", where.place)
    assert str(where).endswith("in user, for record 'a row'")


def progress_of(
    function: Callable[[Any], Any], behind: Sequence[RowStep], records: Sequence[int]
) -> list[CodeLocation]:
    """Where a `flat_map` is at each of its results, with other steps behind it: in the loops of all kinds."""
    seen: list[CodeLocation] = []

    def several(row: int) -> Iterator[Any]:
        for result in function(row):
            seen.append(locate_frame(sys._getframe()))
            yield result

    def keep(row: int) -> bool:
        seen.append(locate_frame(sys._getframe()))
        return row < 0

    steps = [RowStep("many", "many", several), *behind, RowStep("keep", "filter", keep)]
    for carries, order in (("rows", None), ("positions", [(at, 0, 0, at, 0) for at in range(len(records))])):
        RowChain(steps, carries=carries).run(list(records), order)  # type: ignore[arg-type]  # a loop over literals
    RowChain(steps, fused=True).run_into(list(records), 2, list[Any]().extend)
    return seen


TWICE = RowStep("twice", "many", lambda row: [row, row])


@pytest.mark.parametrize("behind", [[], [TWICE]])
def test_endless_results_of_one_record_are_no_progress(behind: list[RowStep]) -> None:
    seen = progress_of(lambda row: range(1_000, 1_010), behind, [1])
    assert len({where.progress_key for where in seen}) == 1
    assert {(where.step, where.record) for where in seen} >= {("many", "1"), ("keep", "1009 made by many of 1")}


@pytest.mark.parametrize("behind", [[], [TWICE]])
def test_another_record_is_progress_even_when_it_equals_the_last(behind: list[RowStep]) -> None:
    marks = [where.progress_key for where in progress_of(lambda row: [row], behind, [7, 7, 7, 7, 7])]
    assert all(before != after for before, after in pairwise(marks[:: 2 + len(behind)]))


class Row(NamedTuple):
    """A row."""

    at: int


def test_operators_and_sources_are_distinguished_too() -> None:
    caught: list[CodeLocation] = []

    def key(row: Row) -> int:
        if row.at == 2:
            caught.append(locate_frame(sys._getframe()))
        return row.at

    def check(row: Row) -> str | None:
        if row.at == 3:
            caught.append(locate_frame(sys._getframe()))
        return None

    made = Topology("t")
    rows = made.source("rows", [Row(n) for n in range(5)], event_time=lambda row: row.at, check=check)
    rows.key_by(key).window(sliding(timedelta(seconds=1))).aggregate("sums", sum_of(key)).sink("o", collect)
    run_topology(made)
    assert {where.step for where in caught} == {"rows", "sums"}
    assert {where.record for where in caught} >= {"Row(at=2)", "Row(at=3)"}


def test_an_ended_thread_has_no_frames() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    assert thread.ident is not None
    assert locate_thread(thread.ident) is None


class Pipe:
    """Both ends of last words."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.words = CrashReporter(writing)
        self.heard = CrashReport()

    def listen(self) -> bytes:
        """All that has come."""
        try:
            data = os.read(self.reading, 1 << 16)
        except BlockingIOError:
            return b""
        self.heard.add(data)
        return data


def test_a_reason_is_received_completely() -> None:
    pipe = Pipe()
    pipe.words.report_alive()
    pipe.words.report_reason("clean: too much\nof everything")
    assert pipe.listen().startswith(ALIVE)
    assert pipe.heard.reason == "clean: too much\nof everything"
    assert (pipe.heard.crash, pipe.heard.place) == ("", "")
    CrashReporter(-1).report_reason("nobody listens")


def test_memory_above_the_bound_ends_the_process_with_a_reason() -> None:
    pipe, codes = Pipe(), list[int]()
    watch = Watchdog("taxi", Bounds(memory_bytes=1_000_000), lambda: CALL, pipe.words, end=codes.append)
    watch._check_once()
    pipe.listen()
    assert codes == [EXIT_BOUND]
    assert re.match(
        r".*: its process took [\d,]+ MB of memory, more than the 1 MB that it may have \(executor_memory_mb\): test_",
        pipe.heard.reason,
    ), pipe.heard.reason


def test_a_call_that_hangs_ends_the_process_with_a_reason(capfd: pytest.CaptureFixture[str]) -> None:
    pipe, codes = Pipe(), list[int]()
    watch = Watchdog("taxi", Bounds(1e-9, 1e-6), lambda: CALL, pipe.words, end=codes.append)
    watch._hang_detector._bounds = Bounds(1e-9, 0.0)
    for _ in range(3):
        watch._check_once()
    assert "warning: clean: user code has not returned for 0 s: test_watchdog.py:" in capfd.readouterr().err
    for _ in range(8):
        watch._hang_detector._bounds = Bounds(1e-9, 1e-6)
        # The mark of this very frame changes from turn to turn; only the time is compared here.
        watch._hang_detector._since = -1e9
        watch._check_once()
        if codes:
            break
    pipe.listen()
    assert codes == [EXIT_BOUND]
    assert pipe.heard.reason.endswith("; its process was stopped (stuck_limit)")


CRASH = """
import os, re, resource, sys, time
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))  # it may outlive a test that is cut off, but not for long
from agiledart_executor.user_code.crash_report import CrashReporter
CrashReporter(int(sys.argv[1])).arm()
sys.path.insert(0, sys.argv[2])
text = {text!r}
exec(compile(text, "/x/agiledart_executor/programs/worker.py", "exec"), {{"made": exec}})
"""

USER = """
def run(code):
    names = {"__name__": "user"}
    exec(compile(code, "<0123abcd>/taxi.py", "exec"), names)
    print("up", flush=True)
    names["hang"]()
run(%r)
"""

HOG = "import re\n\ndef hang():\n    re.match('(a+)+$', 'a' * 60 + 'b')\n"
FALL = "import ctypes\n\ndef hang():\n    ctypes.string_at(0)\n"


@contextlib.contextmanager
def started(code: str, pipe: Pipe) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like an executor in whose user code something is wrong; killed at the end in any case."""
    script = CRASH.format(text=USER % code)
    descriptor = pipe.words._descriptor
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(descriptor), "/"], pass_fds=(descriptor,), stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_c_code_that_holds_the_gil_is_still_detected() -> None:
    pipe = Pipe()
    with started(HOG, pipe) as process:
        for _ in range(2):  # asking does no harm
            while "taxi.py" not in pipe.heard.place:  # it may just be on its way there
                process.send_signal(ASK_SIGNAL)
                select.select([pipe.reading], [], [], 0.1)
                pipe.listen()
            pipe.heard.forget_dumps()
            assert pipe.heard.place == ""


def test_a_crash_is_named() -> None:
    pipe = Pipe()
    with started(FALL, pipe) as process:
        assert process.wait(20) == -signal.SIGSEGV
    pipe.listen()
    assert pipe.heard.crash == "Segmentation fault"
    assert pipe.heard.place == "taxi.py:4 in hang"


def test_an_applications_limits_override_the_agents() -> None:
    agents = Bounds(5.0, 60.0, 1_000)
    assert agents.with_users(UserLimits()) == agents
    users = "limit(memory_mb=) of its topology"
    assert agents.with_users(UserLimits(1.0, 0.0, 500)) == Bounds(1.0, 0.0, 500, users)
    assert agents.with_users(UserLimits(memory_bytes=5_000)) == agents, "and it is the agent's word that holds"
    assert Bounds().with_users(UserLimits(memory_bytes=5_000)).memory_setting == users
    assert Bounds().with_users(UserLimits(memory_bytes=5_000)).memory_bytes == 5_000


def test_wrong_limits_are_named() -> None:
    from datetime import timedelta

    with pytest.raises(ConfigurationError, match="memory_mb is 5; an executor needs at least 64"):
        user_limits(memory_mb=5)
    with pytest.raises(ConfigurationError, match="stuck_limit is -1 s"):
        user_limits(stuck_limit=timedelta(seconds=-1))
    with pytest.raises(ConfigurationError, match="stuck_warning is 0 s"):
        user_limits(stuck_warning=timedelta(0))
    assert user_limits(stuck_limit=timedelta(minutes=2), memory_mb=500) == UserLimits(None, 120.0, 500_000_000)


def test_memory_is_measured_on_this_platform() -> None:
    assert ResidentMemory().bytes() > 1_000_000
    assert 0 < default_memory() < machine_memory()


def test_the_agent_learns_of_a_call_that_does_not_return_and_forgets_it_when_figures_come() -> None:
    report = CrashReport()
    reading, writing = os.pipe()
    try:
        reporter = CrashReporter(writing)
        reporter.report_pending_call("parse", 2.4, "taxi.py:42 in parse")
        reporter.report_pending_call("parse", 3.4, "taxi.py:42 in parse,\nfor record {…}")
        report.add(os.read(reading, 1 << 16))
    finally:
        os.close(reading)
        os.close(writing)
    told = [report.pending_call]
    report.forget_dumps()
    told.append(report.pending_call)
    report.forget_pending_call()
    told.append(report.pending_call)
    call = PendingCall("parse", 3, "taxi.py:42 in parse, for record {…}")
    assert told == [call, call, None], "a request for stacks forgets the stacks only"
