"""User code that raises, hangs, hogs or crashes on three agents: its user gets a message, and the agents survive."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Logs, Status
from tests.e2e.mesh import Mesh, alive, cli, executors_of, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CODE = '''
"""Steps that misbehave at the third record."""
import ctypes, gc, os, re, sys
from datetime import datetime, timedelta
from typing import NamedTuple
from agiledart import Sink, Source, Topology

class Reading(NamedTuple):
    at: datetime
    value: float

class Careless:
    def __del__(self):
        raise RuntimeError("not even this")

def raises_at_threes(reading: Reading) -> Reading:
    if reading.value % 3 == 0:
        raise ValueError(f"{reading.value:.0f} is a multiple of three")
    return reading

def hogs_at_three(reading: Reading) -> Reading:
    kept = []
    while reading.value == 3:
        kept.append(bytearray(1_000_000))
    return reading

def asks_for_too_much_at_three(reading: Reading) -> Reading:
    if reading.value == 3:
        bytearray(1 << 46)
    return reading

def holds_the_lock_at_three(reading: Reading) -> Reading:
    if reading.value == 3:
        re.match("(a+)+$", "a" * 60 + "b")
    return reading

def crashes_at_three(reading: Reading) -> Reading:
    if reading.value == 3:
        ctypes.string_at(0)
    return reading

def recurses_at_three(reading: Reading) -> Reading:
    return recurses_at_three(reading) if reading.value == 3 else reading

def leaves_things_behind(reading: Reading) -> Reading:
    Careless()
    gc.collect()
    return reading

def _topology(step, on_error="fail"):
    def build(readings: Source[Reading], report: Sink[Reading], name: str = "misbehaves") -> Topology:
        topology = Topology(name)
        topology.limit(stuck_warning=timedelta(seconds=1), stuck_limit=timedelta(seconds=4), memory_mb=300)
        topology.source("readings", readings, event_time=lambda r: r.at).map(step, on_error=on_error).sink("report", report)
        return topology
    return build

def spins(readings: Source[Reading], report: Sink[Reading], name: str = "misbehaves") -> Topology:
    while "worker" in sys.argv[0]:
        pass
    return skips(readings, report, name)

skips = _topology(raises_at_threes, "skip")
fails = _topology(raises_at_threes)
hogs = _topology(hogs_at_three)
asks = _topology(asks_for_too_much_at_three, "skip")
holds = _topology(holds_the_lock_at_three)
crashes = _topology(crashes_at_three)
recurses = _topology(recurses_at_three)
careless = _topology(leaves_things_behind)

def puts_aside(readings: Source[Reading], report: Sink[Reading], letters: Sink, name: str = "misbehaves") -> Topology:
    topology = Topology(name)
    stream = topology.source("readings", readings, event_time=lambda r: r.at).map(raises_at_threes, on_error="dead_letter")
    stream.sink("report", report)
    stream.errors("letters").sink("letters-out", letters)
    return topology
'''


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    """Three agents that all tests here share: whatever user code does, they must be there for the next test."""
    with mesh(3) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder."""
    (tmp_path / "taxi.py").write_text(CODE)
    lines = [f"2024-01-01 00:00:{second:02d},{second}\n" for second in range(1, 11)]
    (tmp_path / "in.csv").write_text("".join(lines))
    return tmp_path


def run(made: Mesh, folder: Path, builder: str, *more: str) -> dict[str, Any]:
    """Submit under the builder's name and wait for the end; the final status. It saves nothing, so its first crash ends it."""
    ran = cli(
        "submit", f"taxi.py:{builder}", "--agent", str(made.agent("a1").state_dir), "--set", f"name={builder}",
        "--set", "readings=csv:in.csv@a2", "--set", "report=csv:out.csv@a3", "--delivery", "at-most-once", *more, "-o", "json",
        cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr

    def look() -> dict[str, Any] | None:
        status = made.agent("a2").ask(Status(builder))
        return status if status["state"] in ("finished", "failed", "stopped") else None

    return dict(wait_for(look, 40, f"{builder} has ended"))


def logs(made: Mesh, name: str) -> str:
    """Output that the application printed, on all nodes."""
    return "\n".join(
        line["text"] if isinstance(line, dict) else str(line) for line in made.agent("a1").ask(Logs(name))["lines"]
    )


def values(folder: Path, file: str = "out.csv") -> list[float]:
    """Rows that arrived."""
    return [float(line.rsplit(",", 1)[1]) for line in (folder / file).read_text().splitlines()]


def test_a_record_that_raises_is_skipped_counted_and_reported(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "skips")
    assert status["state"] == "finished"
    assert values(folder) == [1, 2, 4, 5, 7, 8, 10]
    counts = status["summary"]["steps"]["raises_at_threes"]
    assert (counts["rows_in"], counts["rows_out"], counts["skipped"]) == (10, 7, 3)
    told = logs(ring, "skips")
    assert "skipped: taxi.py:" in told
    assert "in raises_at_threes: ValueError: 3 is a multiple of three for record Reading(" in told
    assert "2 more ValueError in raises_at_threes" in told
    shown = cli("status", "skips", "--agent", str(ring.agent("a3").state_dir))
    assert "3 skipped" in shown.stdout, shown.stdout


def test_a_dead_letter_goes_to_the_side_output(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "puts_aside", "--set", "letters=jsonl:letters.jsonl@a1")
    assert status["state"] == "finished", status
    assert values(folder) == [1, 2, 4, 5, 7, 8, 10]
    letters = [json.loads(line) for line in (folder / "letters.jsonl").read_text().splitlines()]
    assert [letter["step"] for letter in letters] == ["raises_at_threes"] * 3
    assert "3 is a multiple of three" in letters[0]["error"]
    assert status["summary"]["steps"]["raises_at_threes"]["dead_letters"] == 3


def test_without_a_policy_the_application_fails_with_the_record(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "fails")
    assert status["state"] == "failed"
    assert "in raises_at_threes: ValueError: 3 is a multiple of three for record Reading(" in status["reason"]
    near = ring.agent("a1")
    told = wait_for(lambda: near.ask(Status("fails"))["summary"], 20, "its last figures")
    assert told["instances_reporting"] >= 2  # the process that failed reports them first; it has the step and the sink


def test_runaway_memory_is_bounded_and_named(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "hogs")
    assert status["state"] == "failed"
    assert "hogs_at_three: its process took " in status["reason"]
    assert "more than the 300 MB that it may have (limit(memory_mb=) of its topology): taxi.py:" in status["reason"]
    assert "for record Reading(" in status["reason"]


def test_a_memory_error_is_handled_like_any_other(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "asks")
    assert status["state"] == "finished"
    assert "MemoryError" in logs(ring, "asks")
    assert len(values(folder)) == 9


def test_c_code_that_holds_the_gil_is_bounded_and_named(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "holds")
    assert status["state"] == "failed"
    assert "user code has not returned for" in status["reason"]
    assert "in holds_the_lock_at_three; its process was stopped" in status["reason"], status["reason"]
    assert "warning: " in logs(ring, "holds")
    assert logs(ring, "holds").count("; its process was stopped") == 1  # though all its instances ended


@pytest.mark.soak
def test_a_builder_that_never_returns_on_the_nodes_is_named(ring: Mesh, folder: Path) -> None:
    ran = cli(
        "submit", "taxi.py:spins", "--delivery", "at-most-once", "--agent", str(ring.agent("a1").state_dir),
        "--set", "readings=csv:in.csv@a2",
        "--set", "report=csv:out.csv@a3", cwd=folder,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "user code did not start within 27 s; it is at taxi.py:" in ran.stderr
    assert "in spins" in ran.stderr
    wait_for(lambda: not any(map(executors_of, ring.agents)), 10, "its processes are gone")


def test_a_crash_is_named(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "crashes")
    assert status["state"] == "failed"
    assert "crashed in taxi.py:" in status["reason"]
    assert "(Segmentation fault, killed by SIGSEGV)" in status["reason"]


def test_a_recursion_error_is_handled_like_any_other(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "recurses")
    assert "in recurses_at_three: RecursionError" in status["reason"]


def test_an_object_that_raises_when_discarded_harms_nothing(ring: Mesh, folder: Path) -> None:
    status = run(ring, folder, "careless")
    assert status["state"] == "finished"
    assert len(values(folder)) == 10
    assert "not even this" in logs(ring, "careless")


def test_the_agents_survive(ring: Mesh) -> None:
    for agent in ring.agents:
        assert alive(agent.pid)
        assert "Traceback" not in agent.log.read_text()
