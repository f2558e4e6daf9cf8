"""A step that is too slow, on three agents: `explain scaling` recommends a number of instances, and status names the owner."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.mesh import cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

JOB = """
import time
from typing import NamedTuple

from agiledart import Sink, Source, Topology, csv, null


class Row(NamedTuple):
    at: int
    key: int


def crawl(row: Row) -> Row:
    time.sleep(0.01)
    return row


def build(rows: Source[Row] = csv("rows.csv"), out: Sink[Row] = null()) -> Topology:
    made = Topology("slow")
    crawled = made.source("rows", rows, event_time=lambda row: row.at).map(crawl, name="crawl")
    crawled.key_by(lambda row: row.key).distinct("fresh").sink("out", out)
    made.scale("crawl", 1, 8)
    return made
"""


@pytest.mark.soak
def test_a_slow_step_gets_a_recommended_number_of_instances(tmp_path: Path) -> None:
    job, rows = tmp_path / "slow.py", tmp_path / "rows.csv"
    job.write_text(JOB)
    rows.write_text("at,key\n" + "".join(f"{n * 3},{n % 50}\n" for n in range(60_000)))
    with mesh(3) as made:
        at = ("--agent", str(made.agents[0].state_dir))
        sent = cli(
            *(
                "submit",
                f"{job}:build",
                "--set",
                f"rows=csv:{rows}?speed=1&overload=spool@a2",
                "--parallelism",
                "fresh=3",
            ),
            *("--executors", "3", *at),
        )
        assert sent.returncode == 0, sent.stderr
        stage: dict[str, Any] = {}
        deadline = time.monotonic() + 120
        while stage.get("health_score") is None and time.monotonic() < deadline:
            told = cli("explain", "scaling", "slow", "crawl", "-o", "json", *at)
            assert told.returncode == 0, told.stderr
            (stage,) = json.loads(told.stdout)["stages"]
        assert stage["limits"] == [1, 8]
        assert stage["health_score"] < 0.8, "333 rows a second are offered, 100 at most can be done"
        assert stage["needed"] > 1
        assert 0 < stage["measures"]["capacity"] <= 100.5
        assert stage["measures"]["offered"] > stage["measures"]["capacity"]
        body = json.loads(cli("status", "slow", "-o", "json", *at).stdout)
        owned = {one["name"]: [copy.get("group_ranges") for copy in one["instances"]] for one in body["stages"]}
        assert owned["fresh"] == ["0-42", "43-85", "86-127"]
        assert owned["out"] == [None]
        shown = cli("status", "slow", *at).stdout
        assert "key groups of fresh: 0 on " in shown
        wrong = cli("explain", "scaling", "slow", "crawll", *at)
        assert (wrong.returncode, "Did you mean crawl?" in wrong.stderr) == (2, True)
        assert cli("stop", "slow", "--now", *at).returncode == 0
        over = cli("explain", "scaling", "slow", *at)
        assert (over.returncode, over.stderr.strip()) == (1, "slow is stopped: only what runs is measured.")


HOT = """
import time
from typing import NamedTuple

from agiledart import Change, Sink, Source, Topology, csv, null


class Row(NamedTuple):
    at: int
    key: int


def crawl(so_far: Row, row: Row) -> Row:
    time.sleep(0.005)
    return row


def build(rows: Source[Row] = csv("rows.csv"), out: Sink[Change] = null()) -> Topology:
    made = Topology("hot")
    made.source("rows", rows, event_time=lambda row: row.at).key_by(lambda row: row.key).reduce("last", crawl).sink("out", out)
    return made
"""


@pytest.mark.soak
def test_a_hot_key_is_named_with_its_share_of_the_rows(tmp_path: Path) -> None:
    job, rows = tmp_path / "hot.py", tmp_path / "rows.csv"
    job.write_text(HOT)
    rows.write_text("at,key\n" + "".join(f"{n * 2},{n % 40 if n % 5 == 0 else 100}\n" for n in range(60_000)))
    with mesh(3) as made:
        at = ("--agent", str(made.agents[0].state_dir))
        source = f"rows=csv:{rows}?speed=1&overload=spool@a2"
        sent = cli("submit", f"{job}:build", "--set", source, "--parallelism", "last=3", "--executors", "3", *at)
        assert sent.returncode == 0, sent.stderr

        def named() -> dict[str, Any] | None:
            told = cli("explain", "scaling", "hot", "last", "-o", "json", *at)
            assert told.returncode == 0, told.stderr
            (stage,) = json.loads(told.stdout)["stages"]
            return stage if stage["hot_group"] is not None else None

        stage = wait_for(named, 120, "a key group is named")
        assert 0.7 < stage["hot_share"] < 0.95, "four of five rows have its key, and some others its group"
        assert stage["why"].startswith(f"key group {stage['hot_group']} alone has ")
        assert stage["why"].endswith("more than one instance can process; more instances do not help")
