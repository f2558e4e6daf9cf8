"""The main job through real processes: exact files from any number of agents, executors and instances."""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from agiledart_examples.taxi_trips import generate
from tests.data import TAXI_SAMPLE, data_path
from tests.debs2015.checking import write_lines
from tests.e2e.mesh import COMMAND, alive, cli, wait_for
from tests.oracle.debs2015 import Answers, answer, difference, read_lines
from tests.oracle.mutate import mutate

pytestmark = pytest.mark.e2e

QUERIES = ("frequent-routes", "profitable-areas")


def demo(source: Path, results: Path, *options: str, timeout: float = 120) -> dict[str, Any]:
    """Run the demo on a file; its JSON."""
    words = ("demo", "--no-spark", "--input", str(source), "--results", str(results), "-o", "json")
    ran = cli(*words, *options, timeout=timeout)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    return dict(json.loads(ran.stdout))


def hold_against(report: dict[str, Any], results: Path, expected: Answers) -> None:
    """Files and counts, exact."""
    for query, rows in zip(QUERIES, (expected.routes, expected.areas), strict=True):
        wrong = difference(results / f"{query}.csv", rows)
        assert wrong is None, f"{query}: {wrong}"
        assert report["results"][query] == len(rows)
        assert report["outliers"][query] == expected.outliers[query]
    assert report["records_in"] == expected.lines
    assert report["malformed"] == dict(sorted(expected.malformed.items()))
    assert report["late"] == expected.late
    assert report["paced"] is False


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """3,000 generated trips with every fault injected, and what must come out."""
    lines = mutate(list(itertools.islice(generate(seed=7), 3_000)), seed=7).lines
    folder = tmp_path_factory.mktemp("nasty")
    return write_lines(folder / "trips.csv.gz", lines), answer(lines)


@pytest.mark.parametrize(
    "options",
    [
        ("--agents", "3"),
        pytest.param(("--agents", "1"), marks=pytest.mark.slow),
        pytest.param(("--agents", "5"), marks=pytest.mark.slow),
        pytest.param(("--agents", "5", "--executors", "2", "--parallelism", "4"), marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_exact_on_a_nasty_stream(nasty: tuple[Path, Answers], tmp_path: Path, options: tuple[str, ...]) -> None:
    source, expected = nasty
    report = demo(source, tmp_path, *options)
    assert report["agents"] == int(options[1])
    hold_against(report, tmp_path, expected)


@pytest.mark.slow
def test_the_real_stream_on_five_agents_within_thirty_seconds(tmp_path: Path) -> None:
    source = data_path(TAXI_SAMPLE)
    expected = answer(read_lines(source))
    began = time.monotonic()
    report = demo(source, tmp_path, "--agents", "5")
    took = time.monotonic() - began
    hold_against(report, tmp_path, expected)
    assert report["records_in"] == 10_004
    hosted = {(stage.partition("/")[0], node) for stage, nodes in report["placement"].items() for node in nodes}
    assert len(report["rss_mb"]) >= 5 + len(hosted), "each agent and each executor tells its memory"
    assert set(report["latency_ms"]) == set(QUERIES)
    for query in QUERIES:
        assert set(report["latency_ms"][query]) >= {"p50", "p95", "p99"}
        nodes = {node for stage, nodes in report["placement"].items() if stage.startswith(query) for node in nodes}
        assert nodes <= {"a1", "a2", "a3", "a4", "a5"}
        assert len(nodes) > 1, "a query that runs on one node shows nothing"
    assert took < 30


def test_paced_input_gives_latencies(tmp_path: Path) -> None:
    """Ten minutes of trips at 600 × real time: results come while the input still flows."""
    source = write_lines(tmp_path / "t.csv.gz", list(itertools.islice(generate(seed=2), 600)))
    report = demo(source, tmp_path, "--agents", "2", "--speed", "600")
    assert report["paced"] is True
    assert 0 < report["latency_ms"]["frequent-routes"]["p50"] < 1_000


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--input", None, "does not exist"),
        ("--input", b"this is not a gzip file", "gzip"),
    ],
)
def test_a_bad_input_is_reported_before_anything_starts(
    tmp_path: Path, option: str, content: bytes | None, message: str
) -> None:
    source = tmp_path / "x.csv.gz"
    if content is not None:
        source.write_bytes(content)
    ran = cli("demo", option, str(source), "--results", str(tmp_path / "r"))
    assert ran.returncode in (1, 2)
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


INSTALLED = str(Path(sys.executable).with_name("agiledart"))
"""Commands that users type. It is quiet from its first line on, `python -m` only once its module is imported."""


def has_run_its_first_line(pid: int) -> bool:
    """Whether the process has left Python's own start, which prints a traceback for Ctrl-C: it has loaded an extension module."""
    return "msgspec" in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize(
    "after", [0.0, 1.0, 2.5, pytest.param(4.0, marks=pytest.mark.slow), pytest.param(8.0, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_at_any_moment_leaves_nothing(tmp_path: Path, after: float, how: signal.Signals) -> None:
    folder = Path(
        tempfile.mkdtemp(dir="/tmp", prefix="adt-")
    )  # no other process writes here; sockets need a short path
    environment = os.environ | {"TMPDIR": str(folder)}
    process = subprocess.Popen(
        [INSTALLED, "demo", "--no-spark", "--agents", "3", "--results", str(tmp_path / "r")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment,
    )  # fmt: skip
    descendants: dict[int, None] = {}
    wait_for(lambda: has_run_its_first_line(process.pid), 30, "the command begins")
    end = time.monotonic() + after
    while time.monotonic() < end and process.poll() is None:
        descendants |= dict.fromkeys(tree(process.pid))
        time.sleep(0.05)
    descendants |= dict.fromkeys(tree(process.pid))
    process.send_signal(how)
    _, talk = process.communicate(timeout=10)
    assert "Traceback" not in talk
    wait_for(lambda: not [pid for pid in descendants if alive(pid)], 2, "all processes are gone")
    wait_for(lambda: not os.listdir(folder), 2, "no temporary file is left")
    folder.rmdir()


@pytest.mark.slow
def test_kill_nine_of_the_demo_leaves_nothing(tmp_path: Path) -> None:
    """The agents hold a pipe to it and end by themselves; the temporary folder goes with them."""
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="adt-"))
    process = subprocess.Popen(
        [*COMMAND, "demo", "--no-spark", "--agents", "3", "--results", str(tmp_path / "r")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=os.environ | {"TMPDIR": str(folder)},
    )  # fmt: skip
    wait_for(lambda: len(tree(process.pid)) >= 8, 30, "agents and executors run")
    descendants = tree(process.pid)
    process.kill()
    process.wait()
    wait_for(lambda: not [pid for pid in descendants if alive(pid)], 30, "all processes are gone")
    wait_for(lambda: not os.listdir(folder), 30, "no folder is left")
    folder.rmdir()


def tree(root: int) -> list[int]:
    """All descendants of a process that run now."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(name))
    found, todo = list[int](), list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        found.append(pid)
        todo += children.get(pid, [])
    return found
