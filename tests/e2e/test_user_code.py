"""Effects of user code on a mesh: print, raise, kill its process, never return. The agents go on."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import ListApplications, Logs, Status
from tests.e2e.mesh import Mesh, alive, cli, executors_of, mesh, wait_for

pytestmark = [pytest.mark.e2e]  # the last test looks at what the others left

CODE = '''
"""Steps that misbehave."""
import os, subprocess, sys, time
from datetime import datetime, timedelta
from typing import NamedTuple
from agiledart import Sink, Source, Topology
import helper

class Reading(NamedTuple):
    at: datetime
    value: float

def double(reading: Reading) -> Reading:
    print("doubling", reading.value)
    return reading._replace(value=helper.twice(reading.value))

def fails_at_three(reading: Reading) -> Reading:
    if reading.value == 3:
        raise ValueError("three is too many")
    return reading

def dies_at_three(reading: Reading) -> Reading:
    if reading.value == 3:
        os._exit(7)
    return reading

def stops_the_loop_at_three(reading: Reading) -> Reading:
    if reading.value == 3:
        import asyncio
        asyncio.get_event_loop().stop()
    return reading

class Odd(BaseException):
    pass

def raises_oddly_at_three(reading: Reading) -> Reading:
    if reading.value == 3:
        raise Odd("not for \\udc80 everybody")
    return reading

def exits_at_three(reading: Reading) -> Reading:
    if reading.value == 3:
        subprocess.Popen(["sleep", "98765"])
        sys.exit("enough")
    return reading

def forks_at_three(reading: Reading) -> Reading:
    """Return in both processes, as if os.fork started a thread."""
    if reading.value == 3 and os.fork() == 0:
        print("a child returns")
    return reading

def moves_away(reading: Reading) -> Reading:
    os.chdir("/")
    return reading

def is_slow(reading: Reading) -> Reading:
    time.sleep(0.02)
    return reading

def never_returns(reading: Reading) -> Reading:
    while reading.value == 3:
        pass
    return reading

def lies(reading: Reading) -> int:
    return "no number"

def _topology(name, step):
    def build(readings: Source[Reading], report: Sink[Reading]) -> Topology:
        topology = Topology(name)
        topology.limit(stuck_warning=timedelta(seconds=1), stuck_limit=timedelta(seconds=4))
        topology.source("readings", readings, event_time=lambda r: r.at).map(step).sink("report", report)
        return topology
    return build

doubling = _topology("doubling", double)
failing = _topology("failing", fails_at_three)
dying = _topology("dying", dies_at_three)
stopping = _topology("stopping", stops_the_loop_at_three)
looping = _topology("looping", never_returns)
lying = _topology("lying", lies)
oddly = _topology("oddly", raises_oddly_at_three)
exiting = _topology("exiting", exits_at_three)
slowly = _topology("slowly", is_slow)
forking = _topology("forking", forks_at_three)
moving = _topology("moving", moves_away)

def choosy(readings: Source[Reading], report: Sink[Reading]) -> Topology:
    if "worker" in sys.argv[0]:
        raise Odd("not here")
    return doubling(readings, report)
'''


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    """Two agents that all tests here share: whatever user code does, they must be there for the next test."""
    with mesh(2) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder with a file called like one of our modules, a helper, and input."""
    (tmp_path / "dataflow.py").write_text(CODE)
    (tmp_path / "helper.py").write_text("def twice(x):\n    return 2 * x\n")
    lines = [f"2024-01-01 00:00:{second:02d},{second}\n" for second in range(10)]
    (tmp_path / "in.csv").write_text("".join(lines))
    return tmp_path


def submit(made: Mesh, folder: Path, builder: str, *, code: int = 0) -> Any:
    """Submit from the user's folder with paths relative to it."""
    ran = cli(
        "submit", f"dataflow.py:{builder}", "--agent", str(made.agent("a1").state_dir),
        "--set", "readings=csv:in.csv@a2", "--set", "report=csv:out.csv@a1", "-o", "json", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    assert "Traceback" not in ran.stderr
    return json.loads(ran.stdout) if code == 0 else ran.stderr


def ended(made: Mesh, name: str, seconds: float = 15.0) -> dict[str, Any]:
    """Its status once it has ended."""

    def look() -> dict[str, Any] | None:
        status = made.agent("a2").ask(Status(name))
        return status if status["state"] in ("finished", "failed", "stopped") else None

    return dict(wait_for(look, seconds, f"{name} has ended"))


def test_a_user_file_may_import_a_neighbour_and_print(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "doubling")
    assert ended(ring, "doubling")["state"] == "finished"
    rows = (folder / "out.csv").read_text().splitlines()
    assert [float(row.split(",")[1]) for row in rows] == [2.0 * n for n in range(10)]
    shown = cli("logs", "doubling", "--agent", str(ring.agent("a1").state_dir))
    assert "doubling 9.0" in shown.stdout
    assert len(ring.agent("a2").ask(Logs("doubling"))["lines"]) >= 10
    wait_for(lambda: not executors_of(ring.agent("a1")) + executors_of(ring.agent("a2")), 5, "executors are gone")


def test_an_exception_names_step_record_and_line(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "failing")
    status = ended(ring, "failing")
    assert status["state"] == "failed"
    for part in ("fails_at_three", "three is too many", "dataflow.py", "value=3.0"):
        assert part in status["reason"], status["reason"]
    assert not (folder / "core").exists()


def test_an_unexpected_exception_is_named_too(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "oddly")
    status = ended(ring, "oddly")
    assert status["state"] == "failed"
    assert "in raises_oddly_at_three: Odd: not for ? everybody" in status["reason"]


def test_a_step_that_exits_is_named_and_leaves_no_process(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "exiting")
    status = ended(ring, "exiting")
    assert "in exits_at_three: SystemExit: enough" in status["reason"]
    started = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"98765" in _text(path)]
    wait_for(lambda: not any(alive(int(path.parent.name)) for path in started), 5, "its process is gone")


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_builder_that_fails_only_on_the_nodes_is_reported_at_once(ring: Mesh, folder: Path) -> None:
    said = submit(ring, folder, "choosy", code=1)
    assert "Odd: not here" in said


@pytest.mark.slow
def test_a_slow_step_is_not_reported_as_hanging(ring: Mesh, folder: Path) -> None:
    """700 rows of 20 ms stand in one frame: longer than a process may be silent."""
    (folder / "in.csv").write_text("".join(f"2024-01-01 00:{n // 60:02d}:{n % 60:02d},{n}\n" for n in range(700)))
    submit(ring, folder, "slowly")
    assert ended(ring, "slowly", 40)["state"] == "finished"
    assert len((folder / "out.csv").read_text().splitlines()) == 700


def test_a_child_that_a_step_forks_adds_no_row(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "forking")
    status = ended(ring, "forking")
    assert status["state"] == "finished", status["reason"]
    rows = (folder / "out.csv").read_text().splitlines()
    assert [float(row.split(",")[1]) for row in rows] == [float(n) for n in range(10)]
    lines = [line for agent in ("a1", "a2") for line in ring.agent(agent).ask(Logs("forking"))["lines"]]
    assert any("the child was ended (end it with os._exit)" in str(line) for line in lines)


def test_a_step_that_changes_its_directory_harms_nothing(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "moving")
    assert ended(ring, "moving")["state"] == "finished"
    assert len((folder / "out.csv").read_text().splitlines()) == 10


def test_a_module_that_raises_on_the_nodes_is_named(ring: Mesh, folder: Path) -> None:
    helper = "import sys\nif 'worker' in sys.argv[0]:\n    raise RuntimeError('no licence here')\n"
    (folder / "helper.py").write_text(helper + "def twice(x):\n    return 2 * x\n")
    said = submit(ring, folder, "doubling", code=1)
    assert "no licence here" in said
    assert "helper.py" in said


def test_a_step_with_rows_of_the_wrong_type_is_named(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "lying")
    status = ended(ring, "lying")
    assert status["state"] == "failed"
    fault = "lies: its rows are not of the type that it declares: form: Expected `int`, got `str`"
    assert status["reason"].startswith(fault)


def test_a_process_that_ends_itself_is_reported(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "dying")
    status = ended(ring, "dying", 30)
    assert status["state"] == "failed"
    assert "the process of dies_at_three" in status["reason"]
    assert "ended (exit code 7: os._exit by user code or a library) (on a" in status["reason"]


def test_an_event_loop_that_user_code_stopped_is_named(ring: Mesh, folder: Path) -> None:
    (folder / "in.csv").write_text("".join(f"2024-01-01 00:{n // 60:02d}:{n % 60:02d},{n}\n" for n in range(3000)))
    ran = cli(
        "submit", "dataflow.py:stopping", "--agent", str(ring.agent("a1").state_dir),
        "--set", "readings=csv:in.csv?speed=5@a2", "--set", "report=csv:out.csv@a1", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    status = ended(ring, "stopping", 30)
    assert status["state"] == "failed"
    assert "user code stopped the event loop of its process" in status["reason"]


def test_a_killed_executor_is_reported(ring: Mesh, folder: Path) -> None:
    (folder / "in.csv").write_text("".join(f"2024-01-01 00:{n // 60:02d}:{n % 60:02d},{n}\n" for n in range(4, 3000)))
    ran = cli(
        "submit", "dataflow.py:doubling", "--agent", str(ring.agent("a1").state_dir), "--set", "readings=csv:in.csv?speed=5@a2",
        "--set", "report=csv:out.csv@a1", "--delivery", "at-most-once", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    os.kill(executors_of(ring.agent("a2"))[0], signal.SIGKILL)
    status = ended(ring, "doubling")
    assert status["state"] == "failed"
    assert "SIGKILL" in status["reason"]
    assert alive(ring.agent("a2").pid)


@pytest.mark.slow
def test_code_that_never_returns_is_stopped_and_named(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "looping")
    status = ended(ring, "looping", 90)
    assert status["state"] == "failed"
    assert "never_returns: user code has not returned for" in status["reason"]
    assert "dataflow.py:" in status["reason"]
    assert "in never_returns, for record Reading(" in status["reason"]


def test_a_missing_file_is_named_with_its_node(ring: Mesh, folder: Path) -> None:
    (folder / "in.csv").unlink()
    said = submit(ring, folder, "doubling", code=1)
    assert "in.csv" in said
    assert "(on a2)" in said
    assert "readings" in said


def test_agents_survive_all_faults(ring: Mesh) -> None:
    for agent in ring.agents:
        assert alive(agent.pid)
        assert "Traceback" not in agent.log.read_text()
    assert ring.agent("a1").ask(ListApplications())["applications"]
