"""Rolled CSV, JSON and Parquet files, exactly once: the sinks' executors and their agent are killed with SIGKILL in mid-stream."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agiledart_agent.run_store import RunStore
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_node.wire.commands import Status
from agiledart_node.wire.effects import ForgetRun
from tests.e2e.mesh import Mesh, cli, executors_of, mesh, wait_for
from tests.e2e.plug import FINAL, pull_the_plug
from tests.unit.agent.test_ended_sink_files import Ended
from tests.unit.connectors.reading import taken

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

CODE = """
from typing import NamedTuple

from agiledart import Sink, Source, Topology


class Reading(NamedTuple):
    at: int
    value: int


def same(reading: Reading) -> Reading:
    return reading


def rolled(readings: Source[Reading], one: Sink[Reading], two: Sink[Reading], three: Sink[Reading]) -> Topology:
    topology = Topology("rolled", delivery="exactly-once")
    rows = topology.source("readings", readings, event_time=lambda reading: reading.at).map(same, name="same")
    rows.sink("one", one)
    rows.sink("two", two)
    rows.sink("three", three)
    return topology
"""
KINDS = ("csv", "jsonl", "parquet")
READINGS = 20_000
SECONDS = 20


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        with mesh(3) as made:
            yield made


def seen(folder: Path, kind: str) -> list[int]:
    """A folder as seen by a reader that takes complete files only: one that is torn would not be read."""
    from typing import NamedTuple

    class Reading(NamedTuple):
        at: int
        value: int

    if not any(not one.name.endswith(".part") for one in folder.iterdir()):
        return []
    return [row.at for row in taken(open_source(parse_connector(f"{kind}:{folder}"), Reading)).rows]


STEP = SECONDS * 1_000 // READINGS + 1


def submitted(ring: Mesh, tmp_path: Path, sizes: dict[str, str], *verb: str) -> None:
    """Three sinks at a3 that roll by `sizes`, of rows from a2. `verb`: in place of `submit`."""
    state_dir = str(ring.agents[0].state_dir)
    (tmp_path / "rolled_files.py").write_text(CODE)
    (tmp_path / "rows.csv").write_text("".join(f"{n * STEP},{n % 101}\n" for n in range(READINGS)))
    sinks = []
    for name, kind in zip(("one", "two", "three"), KINDS, strict=True):
        (tmp_path / kind).mkdir(exist_ok=True)
        sinks += ["--set", f"{name}={kind}:{tmp_path}/{kind}/out.{kind}?{sizes[kind]}@a3"]
    told = cli(
        *(verb or ("submit",)), "rolled_files.py:rolled", "--set", f"readings=csv:{tmp_path}/rows.csv?speed=1@a2", *sinks,
        "--agent", state_dir, cwd=tmp_path,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr


@pytest.mark.soak
def test_each_row_is_in_one_complete_file(ring: Mesh, tmp_path: Path) -> None:
    sizes = {kind: f"roll_bytes={'8KiB' if kind != 'parquet' else '1KiB'}&roll_age=2s" for kind in KINDS}
    submitted(ring, tmp_path, sizes)

    def rows() -> list[list[int]]:
        return [seen(tmp_path / kind, kind) for kind in KINDS]

    def grown(before: list[list[int]]) -> list[list[int]]:
        """Wait for more rows in files of each kind; rows seen before stay, no row is seen twice."""
        found: list[list[int]] = before

        def has_grown() -> bool:
            nonlocal found
            found = rows()
            for then, now in zip(before, found, strict=True):
                assert now[: len(then)] == then
                assert max(Counter(now).values(), default=1) == 1
            return all(len(now) > len(then) for then, now in zip(before, found, strict=True))

        wait_for(has_grown, 120, f"more rows are seen than {[len(one) for one in before]}")
        return found

    agent = ring.agent("a3")
    before = grown([[], [], []])
    for pid in executors_of(agent):
        os.kill(pid, signal.SIGKILL)
    before = grown(before)
    pull_the_plug(agent)
    agent.start()
    before = grown(before)
    status = wait_for(lambda: (told := ring.agents[0].ask(Status("rolled")))["state"] in FINAL and told, 180, "it ends")
    assert (status["state"], status["reason"]) == ("finished", "")
    assert sum("restarted, attempt" in entry["text"] for entry in status["history"]) >= 2
    for kind, found in zip(KINDS, rows(), strict=True):
        assert found == [n * STEP for n in range(READINGS)], kind
        names = sorted(one.name for one in (tmp_path / kind).iterdir())
        assert len(names) > 3
        assert not [name for name in names if name.endswith(".part")], "nothing is left behind"


@pytest.mark.soak
def test_rows_of_a_stopped_run_are_in_complete_files(ring: Mesh, tmp_path: Path) -> None:
    """At once, and with its state kept: nothing rolls by itself here, and what is read goes on."""

    def epoch() -> int:
        return int((ring.agents[0].ask(Status("rolled")).get("epoch") or {}).get("committed", 0))

    for stop in (["--now"], ["--checkpoint", "pause"]):
        folder = tmp_path / stop[0]
        folder.mkdir()
        submitted(ring, folder, dict.fromkeys(KINDS, "roll_bytes=64MiB&roll_age=1h"))
        wait_for(lambda: epoch() > 3, 60, "epochs with rows")
        told = cli("stop", "rolled", *stop, "--agent", str(ring.agents[0].state_dir))
        assert told.returncode == 0, told.stderr
        for kind in KINDS:
            wanted = [f"out-00001.{kind}"]
            wait_for(lambda: [one.name for one in (folder / kind).iterdir()] == wanted, 30, "the file has its name")  # noqa: B023
            found = seen(folder / kind, kind)
            assert found
            assert found == [n * STEP for n in range(len(found))], "each committed row once"


def test_an_agent_that_died_during_a_rename_completes_it_when_it_is_back(tmp_path: Path) -> None:
    """Its run is over, and only this node's disk still has it."""
    with mesh(1) as made:
        (agent,) = made.agents
        node = str((agent.description or {})["node_id"])
        run = Ended(tmp_path, "csv", state_dir=agent.state_dir)
        run.write(0, 50)
        run.commit()
        run.sink.close()
        agent.kill()
        asyncio.run(_died_while_it_ended(agent.state_dir, node, run.digests))
        assert [one for one in run.names() if not one.endswith(".part")] == []
        agent.start()
        wait_for(lambda: run.names() == ["out-00001.csv"], 60, "the file has its name")
        assert len(run.rows()) == 50
        wait_for(lambda: not (agent.state_dir / "runs" / "app.1").exists(), 30, "nothing of it is left")


async def _died_while_it_ended(state_dir: Path, node: str, digests: tuple[bytes, ...]) -> None:
    store = RunStore(state_dir, node, lambda event: None)
    await store.begin_to_forget(ForgetRun("app", 1, digests))
    store.close()
