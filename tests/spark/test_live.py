"""Spark on the log of a real mesh: tables against a plain program, streams, and mistakes in words."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from agiledart_analytics.job_run import copy_live, run_job
from agiledart_analytics.jobs import JOBS
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.commands import CreateToken
from tests.e2e.mesh import AgentProcess, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("spark")]

BUILDER = "agiledart_examples.clean_trips:clean_trips"
SOURCE = "taxi:?count=3000"
COLUMNS = ("taxi", "pickup_at", "dropoff_at", "start_cell", "end_cell", "total_cents")


@dataclass
class Written:
    """A log of clean trips, whose application has ended, and the same rows from one process."""

    agent: AgentProcess
    token: Path
    rows: list[dict[str, Any]]

    def options(self, **more: str) -> dict[str, str]:
        return {"sink": "clean-trips", "tokenFile": str(self.token), **more}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    folder = tmp_path_factory.mktemp("written")
    with mesh(2) as made:
        first, second = made.agents
        ran = cli(
            *("submit", BUILDER, "--set", f"trips={SOURCE}@a2", "--set", "out=log:clean-trips?partitions=4@a1"),
            *("--agent", str(second.state_dir)),
        )
        assert ran.returncode == 0, ran.stderr
        plain = cli("run", BUILDER, "--set", f"trips={SOURCE}", "--set", "out=jsonl:plain.jsonl", cwd=folder)
        assert plain.returncode == 0, plain.stderr

        def ended() -> bool:
            told = cli("status", "clean-trips", "-o", "json", "--agent", str(first.state_dir))
            return '"finished"' in told.stdout

        wait_for(ended, 60, "the application has ended")
        token = folder / "reader.token"
        token.touch(mode=0o600)
        token.write_text(str(first.ask(CreateToken(role="reader", scope="sink:clean-trips", uses=1_000))["token"]))
        yield Written(first, token, [json.loads(line) for line in (folder / "plain.jsonl").open()])


def expected(written: Written) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(str(row[name]).replace("T", " ") for name in COLUMNS) for row in written.rows)


def found(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(str(_naive(row[name])).replace("T", " ") for name in COLUMNS) for row in rows)


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    """Rows of the finished batches of a copy; without Spark."""
    rows: list[dict[str, Any]] = []
    for part in sorted(folder.glob("batch=*")):
        if (part / "_SUCCESS").exists():
            rows += pyarrow.parquet.read_table(part, partitioning=None).to_pylist()
    return rows


def test_a_batch_read_brings_every_row_once(written: Written, spark: Any) -> None:
    frame = spark.read.format("agiledart").options(**written.options()).load()
    assert frame.rdd.getNumPartitions() == 4
    assert found(frame.toArrow().to_pylist()) == expected(written)
    assert frame.where("read_at > timestamp'2020-01-01'").count() == len(written.rows)


def test_rows_carry_their_origin_and_conditions_apply_at_the_source(written: Written, spark: Any) -> None:
    more = {"metadata": "true", "where": "total_cents >= 1000", "pushFilters": "true"}
    frame = spark.read.format("agiledart").options(**written.options(**more)).load()
    rows = frame.where("start_cell like '1%' and _partition < 2").select("_log", "_partition", "_offset", "total_cents")
    read = rows.toArrow().to_pylist()
    plain = spark.read.format("agiledart").options(**written.options(metadata="true")).load()
    plain = plain.where("total_cents >= 1000 and start_cell like '1%' and _partition < 2").select(*rows.columns)
    wanted = plain.toArrow().to_pylist()
    key = lambda row: (row["_partition"], row["_offset"])  # noqa: E731
    assert sorted(read, key=key) == sorted(wanted, key=key)
    assert 0 < len(read) < len(written.rows)
    assert len({key(row) for row in read}) == len(read)


@pytest.mark.slow
def test_tables_equal_those_of_a_plain_program(written: Written, spark: Any, tmp_path: Path) -> None:
    outcome = run_job(spark, JOBS["busiest-routes"], reader=written.options(), results=str(tmp_path))
    groups: dict[datetime, Counter[tuple[str, str]]] = {}
    money: Counter[Any] = Counter()
    for row in written.rows:
        at = datetime.fromisoformat(row["dropoff_at"])
        begin = at - timedelta(minutes=at.minute % 15, seconds=at.second, microseconds=at.microsecond)
        route = (row["start_cell"], row["end_cell"])
        groups.setdefault(begin, Counter())[route] += 1
        money[begin, route] += row["total_cents"]
    wanted = [
        (begin, rank, *route, trips, money[begin, route])
        for begin, counted in sorted(groups.items())
        for rank, (route, trips) in enumerate(sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:10], 1)
    ]
    assert [(_naive(row[0]), *row[1:]) for row in outcome.rows] == wanted
    assert outcome.total == len(wanted)
    assert pyarrow.parquet.read_table(outcome.files).num_rows == len(wanted)

    daily = run_job(spark, JOBS["daily-areas"], reader=written.options())
    areas: Counter[tuple[str, str]] = Counter()
    for row in written.rows:
        areas[row["dropoff_at"][:10], row["start_cell"]] += row["total_cents"]
    best = sorted(areas.items(), key=lambda one: (one[0][0], -one[1], one[0][1]))
    first_day = [(key[1], cents) for key, cents in best if key[0] == best[0][0][0]][:10]
    assert [(row[2], row[4]) for row in daily.rows][: len(first_day)] == first_day
    revenue = run_job(spark, JOBS["revenue"], reader=written.options())
    assert sum(row[2] for row in revenue.rows) == sum(row["total_cents"] for row in written.rows)
    by_area = run_job(spark, JOBS["revenue-by-area"], reader=written.options())
    assert sum(row[3] for row in by_area.rows) == sum(row["total_cents"] for row in written.rows)


@pytest.mark.slow
def test_a_stream_keeps_its_limit_and_its_position(written: Written, spark: Any, tmp_path: Path) -> None:
    for expected_batches in (3, 0):  # the second run begins where the checkpoint stands
        limit = -(-len(written.rows) // 3)
        options = written.options(maxRowsPerBatch=str(limit))
        query = copy_live(spark, options, tmp_path / "copy", tmp_path / "checkpoint", 0)
        query.awaitTermination(120)
        sizes = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        assert len(sizes) == expected_batches
        assert all(size <= limit for size in sizes)
    assert found(parquet_rows(tmp_path / "copy")) == expected(written)


@pytest.mark.slow
def test_mistakes_are_reported_in_one_sentence(written: Written, spark: Any, tmp_path: Path) -> None:
    stranger = tmp_path / "other.token"
    stranger.write_text(str(written.agent.ask(CreateToken(role="reader", scope="sink:other"))["token"]))
    for options, said in (
        (written.options(sink="none", agentTimeout="1s"), "none"),
        (written.options(tokenFile=str(stranger), agentTimeout="1s"), "clean-trips"),
        (written.options(bootstrap="127.0.0.1:1", agentTimeout="1s"), "No agent answers"),
        (written.options(startingOffsets='{"clean-trips/9": 0}'), "clean-trips/9"),
    ):
        with pytest.raises(OperationFailed) as caught:
            run_job(spark, JOBS["revenue"], reader=options)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "adart1" not in str(caught.value)


@pytest.mark.soak
@pytest.mark.slow
def test_the_demo_reports_sparks_results(tmp_path: Path) -> None:
    ran = cli(*("demo", "--agents", "2", "--duration", "5", "--results", str(tmp_path), "-o", "json"), timeout=280)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)["spark"]
    assert told["rows"] > 0, told
    assert told["batches"] > 0
    assert told["rows_per_second"] > 0
    assert told["table"][0][1] == 1
    files = pyarrow.parquet.read_table(told["files"])
    assert files.num_rows == len(told["table"])
