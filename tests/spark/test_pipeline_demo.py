"""`agiledart pipeline demo` as a whole: Spark's models come back, a jam is learned, the topology does not stop. Ctrl-C in it."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from agiledart_cli.verbs.pipeline_demo import JAM_FACTOR, JAMMED, ROUTES
from tests.e2e.mesh import COMMAND, alive, cli, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


def test_the_demo_learns_usual_durations_and_flags_slow_trips() -> None:
    ran = cli("pipeline", "demo", "--window", "10", "-o", "json", timeout=800)
    assert ran.returncode == 0, ran.stderr
    models = json.loads(ran.stdout)["models"]
    before, inside = models[0], models[-1]
    assert (before["in_jam"], inside["in_jam"]) == (False, True)
    for route, usual in ROUTES.items():
        assert before["routes"][route]["usual_seconds"] == pytest.approx(usual, rel=0.1)
        factor = JAM_FACTOR if route in JAMMED else 1.0
        assert inside["routes"][route]["usual_seconds"] == pytest.approx(usual * factor, rel=0.1)
    flagged = [sum(route["flagged"] for route in model["routes"].values()) for model in models]
    assert sum(flagged) > 20
    assert flagged[-1] > 0


MARK = "AGILEDART_TEST_MARK"
MOMENTS = (
    "agents on this machine",
    "slow-trips runs",
    "starting Spark",
    r"Spark: started",
    r"[1-9]\d* models?, ",
)
"""Output before Ctrl-C: the mesh starts, the topology runs, Spark starts, Spark learns, models are there."""


def marked(value: str) -> list[int]:
    """Processes that have inherited the mark; those that have ended and wait for their parents are none."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"{MARK}={value}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if alive(pid)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_ends_the_demo_and_leaves_nothing(moment: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="adt-", dir="/tmp"))  # paths of sockets are short
    value, output = uuid.uuid4().hex, folder / "output"
    with output.open("w") as file:
        demo = subprocess.Popen(
            [*COMMAND, "pipeline", "demo", "--window", "5"],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            env={**os.environ, MARK: value, "TMPDIR": str(folder), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={folder}"},
        )  # fmt: skip
    try:
        wait_for(
            lambda: re.search(moment, output.read_text()) or demo.poll() is not None, 600, f"the demo says {moment}"
        )
        assert demo.poll() is None, output.read_text()
        os.killpg(demo.pid, signal.SIGINT)  # a terminal sends it to the whole group
        assert demo.wait(60) == 130
        assert "Traceback" not in output.read_text()
        wait_for(lambda: not marked(value), 60, "all processes of the demo have ended")
        wait_for(lambda: os.listdir(folder) == ["output"], 20, "the demo's folder is removed")
    finally:
        for pid in marked(value):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder)
