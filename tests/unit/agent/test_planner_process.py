"""The planner process: answers, limits, and what is left when it is late, dead, or answers nonsense."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from agiledart_agent.executors.isolated_python import isolated_environment
from agiledart_agent.executors.planner_process import MEMORY_BYTES, PlannerProcess
from agiledart_agent.executors.planner_program import framed
from agiledart_kernel.errors import OperationFailed
from agiledart_placement.plan_question import PlanQuestion

SLOW = "from agiledart_agent.executors import planner_program\nimport agiledart_placement.plan_answering as p\n"
SILENT = SLOW + "def spin(q, clock):\n    while True: pass\np.answer_question = spin\nplanner_program.main()\n"
NONSENSE = SLOW + "p.answer_question = lambda q, clock: 'thirteen'\nplanner_program.main()\n"


def question(strategy: str = "hill_climbing", seconds: float = 5.0) -> PlanQuestion:
    """s on a → work → t on c; the way by b takes 20 ms, any other 50 ms."""
    nodes = [{"name": name, "capacity": {"slots": 2}} for name in "abc"]
    links = [{"from": a, "to": b, "delay_ms": ms} for a, b, ms in (("a", "b", 10), ("b", "c", 10), ("a", "c", 50))]
    operators = [
        {"name": "s", "on": ["a"], "rate": 10},
        {"name": "work", "execution_ms": 1},
        {"name": "t", "on": ["c"]},
    ]
    streams = [{"from": "s", "to": "work"}, {"from": "work", "to": "t"}]
    return PlanQuestion(
        strategy,
        "response",
        {"format": "agiledart-network/1", "nodes": nodes, "links": links},
        {"format": "agiledart-topology/1", "operators": operators, "streams": streams},
        seconds=seconds,
    )


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a state of a process."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  the kernel tells no loop of it
            await asyncio.sleep(0)


def test_one_process_answers_all_questions_and_ends_when_it_is_idle(tmp_path: Path) -> None:
    async def scenario() -> None:
        planner = PlannerProcess(str(tmp_path), idle_seconds=0.1)
        answer = await planner.solve(question())
        assert (answer.placement, answer.value, answer.refusal) == ({"s": ["a"], "work": ["b"], "t": ["c"]}, 21.0, "")
        pid = planner.pid
        assert pid is not None
        assert (await planner.solve(question("by_taste"))).refusal.startswith(
            "strategy 'by_taste': use one of along_path"
        )
        assert planner.pid == pid
        await until(lambda: not is_alive(pid))
        assert planner.pid is None

    asyncio.run(scenario())


def test_the_integer_programme_runs_within_the_limit_of_memory(tmp_path: Path) -> None:
    async def scenario() -> None:
        pytest.importorskip("highspy")
        planner = PlannerProcess(str(tmp_path))
        answer = await planner.solve(question("odp"))
        assert (answer.placement["work"], answer.status, answer.gap) == (["b"], "optimal", 0.0)
        await planner.close()
        assert planner.pid is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("program", "reason"), [(SILENT, "did not answer within 1.2 s"), (NONSENSE, "answer cannot be read")]
)
def test_a_late_planner_and_one_that_answers_nonsense_are_ended(
    program: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        (tmp_path / "planner_double.py").write_text(program)
        monkeypatch.syspath_prepend(tmp_path)
        planner = PlannerProcess(str(tmp_path), "planner_double")
        asked = asyncio.create_task(planner.solve(question(seconds=0.2)))
        await until(lambda: planner.pid is not None)
        pid = planner.pid
        assert pid is not None
        with pytest.raises(OperationFailed, match=reason):
            await asked
        assert not is_alive(pid)

    asyncio.run(scenario())


def test_a_planner_that_was_killed_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        planner = PlannerProcess(str(tmp_path))
        await planner.solve(question())
        pid = planner.pid
        assert pid is not None
        asked = asyncio.create_task(planner.solve(question()))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(OperationFailed, match="process of the planner ended"):
            await asked
        assert (await planner.solve(question())).placement["work"] == ["b"]
        await planner.close()

    asyncio.run(scenario())


def test_a_planner_without_its_agent_ends_itself(tmp_path: Path) -> None:
    (tmp_path / "planner_double.py").write_text(SILENT)
    environment = {**isolated_environment(os.environ)}
    environment["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    with subprocess.Popen(
        [sys.executable, "-m", "planner_double", str(MEMORY_BYTES)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(framed(msgspec.msgpack.encode(question(seconds=0.1))))
        process.stdin.flush()
        began = time.monotonic()
        assert process.wait(60) == -signal.SIGALRM
        assert time.monotonic() - began > 1
