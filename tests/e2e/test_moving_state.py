"""A stage with much state moves between real agents: only changed state is handed over, and the result is right."""

from pathlib import Path

import pytest

from agiledart_executor.snapshots.snapshot_file import SnapshotHeader, read_header
from agiledart_node.wire.commands import ExplainScaling, Status
from tests.e2e.mesh import Mesh, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

KEYS, RATE = 1_500, 300

CODE = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def key_of(reading: Reading) -> str:
    return f"{reading.key:0200d}"


def add(so_far: Reading, reading: Reading) -> Reading:
    return Reading(reading.at, reading.key, so_far.value + reading.value)


def build(readings: Source[Reading], report: Sink[Reading], name: str = "heavy") -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    rows.key_by(key_of, returns=str).reduce("sums", add).map(lambda change: change.value, name="short").sink("report", report)
    return topology
"""


def written(folder: Path, seconds: int) -> str:
    """Code and rows: each key once, then so many a second. The expected result."""
    (folder / "heavy.py").write_text(CODE)
    sums = [0] * KEYS
    lines: list[str] = []
    expected: list[str] = []
    for number in range(KEYS + RATE * seconds):
        at = max(0, number - KEYS) * 1_000 // RATE
        key = number if number < KEYS else number * 7_919 % KEYS
        sums[key] += number % 101
        lines.append(f"{at},{key},{number % 101}\n")
        expected.append(f"{at},{key},{sums[key]}\n")
    (folder / "rows.csv").write_text("".join(lines))
    return "".join(expected)


def elements(ring: Mesh) -> list[SnapshotHeader]:
    """Files of the run on the agents' disks."""
    found = []
    for agent in ring.agents:
        for path in sorted(agent.state_dir.glob("runs/heavy.*/elements/[0-9a-f]*")):
            try:
                found.append(read_header(path))
            except Exception:  # noqa: BLE001  it was dropped meanwhile
                continue
    return found


def test_a_state_moves_to_another_agent_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = written(tmp_path, 600)
    out = tmp_path / "out.csv"
    monkeypatch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "3")
    with mesh(3) as ring:
        told = ring.agents[0]
        at_a1 = ("--agent", str(told.state_dir))
        words = (
            *("submit", "heavy.py:build", "--set", f"readings=csv:{tmp_path / 'rows.csv'}?speed=1@a1"),
            *("--set", f"report=csv:{out}@a1", "--parallelism", "sums=1..2"),
        )
        submitted = cli(*words, *at_a1, cwd=tmp_path)
        assert submitted.returncode == 0, submitted.stderr
        wait_for(lambda: out.exists() and out.read_text().count("\n") > KEYS, 60, "every key has been seen")
        seen = (told.ask(Status("heavy")).get("epoch") or {}).get("committed", 0)
        wait_for(
            lambda: (told.ask(Status("heavy")).get("epoch") or {}).get("committed", 0) > seen + 1,
            60,
            "its state is saved",
        )
        for number in (1, 2):
            here = told.ask(Status("heavy"))["placement"]["sums+short"][0]
            moved = cli("move", "heavy", "sums.0", "a3" if here == "a2" else "a2", *at_a1, cwd=tmp_path)
            assert moved.returncode == 0, moved.stdout + moved.stderr
            last = [one for one in elements(ring) if one.stage == 1 and one.generation == number]
            assert last, "it lies there until two more epochs are committed"
            assert max(last, key=lambda one: one.epoch).onto, "the handed-over state lists the changes"
            changes = wait_for(
                lambda number=number: (
                    len(known := told.ask(ExplainScaling("heavy"))["changes"]) == number
                    and known[-1]["pause_ms"] is not None
                    and known
                ),
                60,
                "the next epoch tells the gap",
            )
            assert changes[-1]["state"] == "done"
        stopped = cli("stop", "heavy", *at_a1, cwd=tmp_path)
        assert stopped.returncode == 0, stopped.stderr
        over = wait_for(lambda: (now := told.ask(Status("heavy")))["state"] == "stopped" and now, 60, "it ends")
        assert not any("restarted, attempt" in entry["text"] for entry in over["history"]), "in one life"
        assert expected.startswith(out.read_text())
