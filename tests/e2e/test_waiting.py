"""Causes of waiting on real agents: `status` names the stage, what it waits for and for how long; commands say it on the way."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_node.wire.commands import Status
from tests.e2e.mesh import COMMAND, Mesh, cli, mesh, wait_for
from tests.ports import lasting_port

pytestmark = [pytest.mark.e2e]

CODE = '''
"""A step that does not return, a slow one, and two inputs of which one brings nothing."""
import os, time
from datetime import datetime, timedelta
from typing import NamedTuple
from agiledart import Sink, Source, Topology, tumbling

GO = {go!r}

class Reading(NamedTuple):
    at: datetime
    value: float

def stuck(reading: Reading) -> Reading:
    while not os.path.exists(GO):
        time.sleep(0.05)
    return reading

def slow(reading: Reading) -> Reading:
    time.sleep(0.05)
    return reading

def slowly(readings: Source[Reading], report: Sink[Reading]) -> Topology:
    topology = Topology("slowly")
    topology.source("readings", readings, event_time=lambda r: r.at).map(slow).sink("report", report)
    return topology

def looping(readings: Source[Reading], report: Sink[Reading]) -> Topology:
    topology = Topology("looping")
    topology.limit(stuck_warning=timedelta(seconds=30), stuck_limit=timedelta(seconds=60))
    topology.source("readings", readings, event_time=lambda r: r.at).map(stuck).sink("report", report)
    return topology

def both(live: Source[Reading], silent: Source[Reading], report: Sink[Reading]) -> Topology:
    topology = Topology("both", delivery="exactly-once")
    first = topology.source("live", live, event_time=lambda r: r.at)
    second = topology.source("silent", silent, event_time=lambda r: r.at)
    minutes = first.union(second, name="readings").key_by(lambda r: r.value).window(tumbling(timedelta(seconds=1)))
    minutes.count("counts").sink("report", report)
    return topology
'''


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with mesh(2) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "waits.py").write_text(CODE.replace("{go!r}", repr(str(tmp_path / "go"))))
    lines = [f"2024-01-01 00:00:{second:02d},{second}\n" for second in range(10)]
    (tmp_path / "in.csv").write_text("".join(lines))
    return tmp_path


def submit(made: Mesh, folder: Path, builder: str, *settings: str) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    ran = cli("submit", f"waits.py:{builder}", "--agent", str(made.agent("a1").state_dir), *words, cwd=folder)
    assert ran.returncode == 0, ran.stderr


def cause(made: Mesh, name: str, kind: str, text: str = "") -> dict[str, Any]:
    """The row of this kind in `status`, once it is there and has this text in it."""

    def look() -> dict[str, Any] | None:
        rows = made.agent("a2").ask(Status(name))["waiting"]
        return next((row for row in rows if row["cause"] == kind and text in row["text"]), None)

    return dict(wait_for(look, 20, f"{name} waits: {kind} {text}"))


def test_user_code_that_does_not_return_is_named_before_it_is_ended(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "looping", "readings=csv:in.csv@a2", "report=null:@a1")
    row = cause(ring, "looping", "user call")
    assert "waits.py" in row["text"]
    assert "in stuck" in row["text"]
    assert row["seconds"] >= 3
    agent = str(ring.agent("a1").state_dir)
    shown = cli("explain", "waiting", "looping", "--agent", agent).stdout
    assert "user code has not returned" in shown
    assert "give the call a timeout of its own" in shown
    assert "user code has not returned" in cli("status", "looping", "--agent", agent).stdout
    assert "looping: " in cli("doctor", "--agent", agent).stdout
    cli("stop", "looping", "--now", "--agent", agent)


def test_the_slow_stage_at_the_end_of_the_chain_is_named(ring: Mesh, folder: Path) -> None:
    (folder / "many.csv").write_text("".join(f"2024-01-01 00:00:00,{number}\n" for number in range(100_000)))
    submit(ring, folder, "slowly", "readings=csv:many.csv@a2", "report=null:@a1")
    row = cause(ring, "slowly", "full receiver")
    assert row["stage"].startswith("slow")
    assert row["blocks"] == ["readings"]
    agent = str(ring.agent("a1").state_dir)
    cli("stop", "slowly", "--now", "--agent", agent)


def test_a_silent_input_is_named_with_the_stage_that_waits_for_it(ring: Mesh, folder: Path) -> None:
    live, silent = lasting_port(), lasting_port()
    places = f"live=tcp:127.0.0.1:{live}?listen=1@a2", f"silent=tcp:127.0.0.1:{silent}?listen=1@a2"
    submit(ring, folder, "both", *places, "report=log:both@a1")
    with socket.create_connection(("127.0.0.1", live)) as line:
        line.sendall((folder / "in.csv").read_bytes())
        row = cause(ring, "both", "silent input", "(10 rows wait, saved meanwhile)")  # at first only windows wait
    assert row["text"] == "live waits for silent (10 rows wait, saved meanwhile), silent"
    cli("stop", "both", "--now", "--agent", str(ring.agent("a1").state_dir))


def test_stop_reports_the_cause_of_its_waiting(ring: Mesh, folder: Path) -> None:
    submit(ring, folder, "looping", "readings=csv:in.csv@a2", "report=null:@a1")
    cause(ring, "looping", "user call")
    stopping = subprocess.Popen(
        [*COMMAND, "stop", "looping", "--agent", str(ring.agent("a1").state_dir)], stderr=subprocess.PIPE, text=True
    )
    assert stopping.stderr is not None
    said = next(line for line in stopping.stderr if "has not returned" in line)
    assert "waits.py" in said
    (folder / "go").touch()
    stopping.communicate(timeout=60)
    assert stopping.returncode == 0
