"""A dry run is accurate: on which node code does not load, what a source or sink would find there, what it guarantees."""

import json
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.mesh import cli, mesh

pytestmark = pytest.mark.e2e

ROOMS = """
from typing import Any

from agiledart import Sink, Source, Topology, csv, jsonl


def is_warm(row: dict[str, Any]) -> bool:
    return bool(row["celsius"] > 20)


def rooms(readings: Source[dict[str, Any]], report: Sink[dict[str, Any]] = jsonl("out.jsonl")) -> Topology:
    topology = Topology("rooms")
    topology.source("readings", readings).filter(is_warm).sink("report", report)
    return topology
"""


def test_each_host_reports_its_checks(tmp_path: Path) -> None:
    (tmp_path / "rooms.py").write_text(ROOMS)
    (tmp_path / "in.jsonl").write_text('{"celsius": 21.5}\n')
    with mesh(2) as made:

        def dry(source: str, sink: str, code: int, *more: str) -> str:
            words = ["--set", f"readings={source}", "--set", f"report={sink}", "--agent", str(made.agents[0].state_dir)]
            words += more
            done = cli("submit", "--dry-run", "rooms.py:rooms", *words, cwd=tmp_path)
            assert done.returncode == code, done.stdout + done.stderr
            return done.stdout

        told = dry(f"jsonl:{tmp_path}/in.jsonl@a2", f"jsonl:{tmp_path}/out.jsonl", 0)
        readings = next(line for line in told.splitlines() if line.startswith(" readings  a2"))
        assert "can be read" in readings
        assert "read again from the beginning" in readings
        assert "can be written" in told
        assert not (tmp_path / "out.jsonl").exists(), "nothing is written"
        (tmp_path / "out.jsonl").write_text("kept")
        assert "exists; will be overwritten" in dry(f"jsonl:{tmp_path}/in.jsonl", f"jsonl:{tmp_path}/out.jsonl", 0)
        assert (tmp_path / "out.jsonl").read_text() == "kept"

        told = dry(f"jsonl:{tmp_path}/nothing.jsonl@a2", "jsonl:/nowhere/out.jsonl@a1", 1)
        assert "nothing.jsonl" in told
        assert "there is no folder /nowhere here" in told
        assert "rows that are dicts have no columns" in dry(f"jsonl:{tmp_path}/in.jsonl", f"csv:{tmp_path}/o.csv", 1)
        told = dry(f"jsonl:{tmp_path}/in.jsonl", "log:warm", 0)
        assert "rows of one attempt once" in told

        ends = f"jsonl:{tmp_path}/in.jsonl@a2", "log:warm"
        end = time.monotonic() + 60
        while "is_warm runs on a" not in (told := dry(*ends, 0, "--placement", "hill_climbing:response")) or (
            "hill_climbing: response" not in told
        ):  # the nodes must have measured each other
            assert time.monotonic() < end, told
        assert "(hill_climbing:response)" in told
        dry(*ends, 2, "--placement", "hill_climbing:respons")


def test_code_that_does_not_load_is_reported_with_the_node(tmp_path: Path) -> None:
    """The submitter has a module that the nodes do not have."""
    (tmp_path / "rooms.py").write_text("import only_here\n" + ROOMS)
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "only_here.py").write_text("")
    with mesh(1) as made:
        words = ["--set", f"readings=jsonl:{tmp_path}/in.jsonl", "--agent", str(made.agents[0].state_dir), "-o", "json"]
        path = ":".join([str(site), *sys.path])
        done = cli(
            "submit", "--dry-run", "rooms.py:rooms", *words, cwd=tmp_path, env={**_environment(), "PYTHONPATH": path}
        )
        assert done.returncode == 1, done.stderr
        (row,) = json.loads(done.stdout)["checks"]
        assert (row["stage"], row["node"], row["is_good"]) == ("", "a1", False)
        assert "only_here" in row["text"]


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
