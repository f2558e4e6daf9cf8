"""The job of the tests that pull plugs: a paced file, windows by key, a log and a file; and what an undisturbed run writes."""

import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_executor.snapshots.checksummed_file import _MAGIC, _SUM_BYTES
from agiledart_kernel.codec import Codec
from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_node.wire.commands import Status
from agiledart_recovery.wire.effects import VoterFile
from agiledart_recovery.wire.register_value import RegisterValue
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.log_reader import LogReader
from tests.e2e.mesh import AgentProcess, Mesh, cli, executors_of, wait_for

CODE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart import Pane, Sink, Source, Topology, sum_of, tumbling


class Reading(NamedTuple):
    at: int
    key: int
    value: int


def build(readings: Source[Reading], report: Sink[Pane], copy: Sink[Pane], name: str = "plug") -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    sums = window.aggregate("sums", sum_of(lambda reading: reading.value))
    sums.sink("report", report)
    sums.sink("copy", copy)
    return topology


def roaming(readings: Source[Reading], report: Sink[Pane], copy: Sink[Pane], name: str = "roaming") -> Topology:
    topology = Topology(name, delivery="exactly-once", on_source_lost="move")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: reading.key).window(tumbling(timedelta(milliseconds=50)))
    sums = window.aggregate("sums", sum_of(lambda reading: reading.value))
    sums.sink("report", report)
    sums.sink("copy", copy)
    return topology


def heap(readings: Source[Reading], report: Sink[Pane], copy: Sink[Pane], name: str = "heap") -> Topology:
    topology = Topology(name, delivery="exactly-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at)
    window = rows.key_by(lambda reading: str(reading.at).rjust(300, "k"), returns=str).window(tumbling(timedelta(hours=1)))
    sums = window.aggregate("sums", sum_of(lambda reading: reading.value))
    sums.sink("report", report)
    sums.sink("copy", copy)
    return topology
"""

_VOTER: Codec[VoterFile] = Codec(VoterFile, limit=MAX_RECORD_BYTES)

FINAL = ("finished", "failed", "stopped")


def write_input(folder: Path, readings: int) -> None:
    """Put code and input into a folder; with `speed=1` a thousand readings last a second."""
    (folder / "plug.py").write_text(CODE)
    (folder / "rows.csv").write_text("".join(f"{n},{n % 7},{n * n % 101}\n" for n in range(readings)))


def undisturbed(folder: Path, readings: int, entry: str = "build") -> str:
    """Put code and input into a folder; return the output of one undisturbed process."""
    write_input(folder, readings)
    told = cli(
        "run", f"plug.py:{entry}", "--set", "readings=csv:rows.csv", "--set", "report=null:",
        "--set", "copy=csv:expected.csv", cwd=folder,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return (folder / "expected.csv").read_text()


class Job:
    """One application of the mesh: source on a1, state on whichever agent, sinks on a3."""

    def __init__(
        self, ring: Mesh, folder: Path, name: str, *more: str, entry: str = "build", readings: str = "", at: str = "a1"
    ) -> None:
        self.ring, self.name, self.out = ring, name, folder / f"{name}.csv"
        source = readings or f"csv:{folder / 'rows.csv'}?speed=1"
        told = cli(
            "submit", f"plug.py:{entry}", "--set", f"readings={source}@{at}",
            "--set", f"report=log:{name}@a3", "--set", f"copy=csv:{self.out}@a3", "--set", f"name={name}",
            "--agent", str(ring.agents[0].state_dir), *more, cwd=folder,
        )  # fmt: skip
        assert told.returncode == 0, told.stderr

    def status(self) -> dict[str, Any]:
        """As any agent that answers sees it; nothing while none does."""
        for agent in self.ring.living():
            try:
                return dict(agent.ask(Status(self.name)))
            except (CommandRefusedError, NoAgentError, OSError):
                continue
        return {"state": ""}

    def read(self) -> int:
        """Lines that the source has read."""
        stages = {stage["name"]: stage for stage in self.status().get("stages", [])}
        instances = stages.get("readings", {}).get("instances", [])
        return sum(one.get("steps", {}).get("readings", {}).get("rows_in", 0) for one in instances)

    def until_committed(self) -> None:
        """Wait until readers of the log see rows: an epoch was committed."""
        wait_for(lambda: self.logged(), 60, "a committed epoch")

    def until_over(self) -> dict[str, Any]:
        """Wait for the end."""
        return dict(wait_for(lambda: (told := self.status())["state"] in FINAL and told, 180, f"{self.name} ends"))

    def stop(self) -> dict[str, Any]:
        """Let it work off what its source has read; return its last status."""
        told = cli("stop", self.name, "--agent", str(self.ring.living()[0].state_dir))
        assert told.returncode == 0, told.stdout + told.stderr
        return self.until_over()

    def logged(self) -> list[Any]:
        """Committed rows of the log."""
        folder = log_directory(self.ring.agent("a3").state_dir, self.name)
        rows: list[Any] = []
        if not (folder / "log.json").exists():
            return rows
        reader = LogReader(folder)
        offset, end = 0, reader.ends(0).committed
        while offset < end:
            batches, offset, _ = reader.fetch(0, offset, 10_000, 1 << 20)
            for batch in batches:
                rows += msgspec.msgpack.decode(batch.body)
        return rows


def as_csv(rows: list[Any]) -> str:
    return "".join(",".join(map(str, row)) + "\n" for row in rows)


def check(job: Job, expected: str) -> None:
    told = job.until_over()
    assert (told["state"], told["reason"]) == ("finished", "")
    assert any("restarted, attempt" in entry["text"] for entry in told["history"])
    assert job.out.read_text() == expected
    assert as_csv(job.logged()) == expected


def host_of(job: Job, stage: str) -> AgentProcess:
    (name,) = job.status()["placement"][stage]
    return job.ring.agent(name)


def register_of(ring: Mesh) -> RegisterValue | None:
    """Value of the single register, from the newest of its files, those of dead voters included."""
    files = [path.read_bytes() for agent in ring.agents for path in agent.state_dir.glob("runs/*/voter")]
    found = [_VOTER.decode(raw.removeprefix(raw[: len(_MAGIC) + _SUM_BYTES])) for raw in files]
    newest = max(found, key=lambda one: one.accepted, default=None)
    return None if newest is None else newest.value


def voters_of(ring: Mesh) -> list[str]:
    """Agents that vote in the one register that there is."""
    value = register_of(ring)
    return [] if value is None else [voter.peer.name for voter in value.voters]


def pull_the_plug(agent: AgentProcess) -> None:
    """kill -9 of an agent and of everything that it started."""
    executors = executors_of(agent)
    agent.kill()
    for pid in executors:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
