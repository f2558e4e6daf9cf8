"""Latency percentiles of an application: Spark's against those that plain Python computes from the same log."""

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest

from agiledart_agent.identity.reader_identity import identity_from_token
from agiledart_analytics.job_run import run_job
from agiledart_analytics.jobs import JOBS
from agiledart_cli.main import run_cli
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.commands import CreateToken, Status
from agiledart_sink_log.client import SinkLogClient
from tests.e2e.mesh import AgentProcess, cli, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("spark")]

LOG = "_latency.clean-trips"
SHARES = (0.5, 0.95, 0.99)
Figures = tuple[int, float, float, float, float]


@pytest.fixture(scope="module")
def agent() -> Iterator[AgentProcess]:
    """An agent whose application ran twice and has ended."""
    with mesh(1) as made:
        (only,) = made.agents
        for run, count in ((1, 3_000), (2, 1_500)):
            ran = cli(
                *(
                    "submit",
                    "agiledart_examples.clean_trips:clean_trips",
                    "--set",
                    f"trips=taxi:?count={count}&speed=3000",
                ),
                *("--set", "out=null:", "--agent", str(only.state_dir)),
            )
            assert ran.returncode == 0, ran.stderr
            wait_for(partial(_has_ended, only, run), 60, f"run {run} has ended")
        yield only


def _has_ended(agent: AgentProcess, run: int) -> bool:
    told = agent.ask(Status("clean-trips"))
    return (told["version"], told["state"]) == (run, "finished")


@pytest.fixture(scope="module")
def token(agent: AgentProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "reader.token"
    path.touch(mode=0o600)
    path.write_text(str(agent.ask(CreateToken(role="reader", scope=f"sink:{LOG}", uses=1_000))["token"]))
    return path


@pytest.fixture(scope="module")
def rows(agent: AgentProcess) -> list[list[Any]]:
    """The log, read without Spark."""
    word = str(agent.ask(CreateToken(role="reader"))["token"])
    with SinkLogClient([agent.address], identity_from_token(word)[0], agent_timeout_s=20.0) as reader:
        end = reader.ends(LOG).partitions[0].committed
        found: list[list[Any]] = []
        while len(found) < end:
            for batch in reader.fetch(LOG, 0, len(found)).batches:
                found += msgspec.msgpack.decode(batch.body)
    assert end > 100
    return found


def figures(latencies: list[float]) -> Figures:
    ordered = sorted(latencies)
    ranked = [ordered[max(1, ceil(round(share * len(ordered), 6))) - 1] for share in SHARES]
    return len(ordered), ranked[0], ranked[1], ranked[2], ordered[-1]


def test_percentiles_of_each_run_are_those_of_plain_python(
    spark: Any, rows: list[list[Any]], token: Path, tmp_path: Path
) -> None:
    by_run: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for application, version, sink, _, _, _, latency in rows:
        by_run[application, version, sink].append(latency)
    expected = [(*run, *figures(latencies)) for run, latencies in sorted(by_run.items())]
    assert [run[1] for run in expected] == [1, 2]
    outcome = run_job(spark, JOBS["latency"], reader={"tokenFile": str(token)}, sinks=[LOG], results=str(tmp_path))
    assert outcome.columns == ("application", "version", "sink", "samples", "p50_ms", "p95_ms", "p99_ms", "max_ms")
    assert list(outcome.rows) == expected
    assert pyarrow.parquet.read_table(outcome.files).num_rows == 2


@pytest.mark.soak
def test_percentiles_of_each_minute(spark: Any, rows: list[list[Any]], token: Path) -> None:
    by_minute: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for application, version, sink, _, _, at, latency in rows:
        by_minute[application, version, sink, at // 60_000_000_000].append(latency)
    outcome = run_job(spark, JOBS["latency-by-minute"], reader={"tokenFile": str(token)}, sinks=[LOG])
    assert [row[4:] for row in outcome.rows] == [figures(by_minute[minute]) for minute in sorted(by_minute)]
    assert [int(row[3].timestamp()) // 60 for row in outcome.rows] == [minute[3] for minute in sorted(by_minute)]


@pytest.mark.parametrize("count", [1, 2, 20, 100, 101])
def test_percentiles_are_values_that_occurred(spark: Any, count: int) -> None:
    """Where the share falls exactly on a rank, too."""
    made = spark.createDataFrame(
        [("a", 1, "s", float(n)) for n in range(1, count + 1)],
        "application string, version int, sink string, latency_ms double",
    )
    (found,) = JOBS["latency"].compute(made).collect()
    assert tuple(found)[3:] == figures([float(n) for n in range(1, count + 1)])


def test_a_missing_log_is_skipped_unless_all_are_missing(spark: Any, token: Path) -> None:
    wide = {"tokenFile": str(token)}
    with pytest.raises(OperationFailed, match="may use sink:"):
        run_job(spark, JOBS["latency"], reader=wide, sinks=[LOG, "_latency2.clean-trips"])


@pytest.mark.slow
@pytest.mark.usefixtures("same_session")
def test_the_verb_asks_the_agent_for_everything(
    agent: AgentProcess, rows: list[list[Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AGILEDART_TOKEN", raising=False)
    assert run_cli(["analytics", "run", "latency", "clean-trips", "--agent", str(agent.state_dir), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["name"] == "latency"
    assert sum(row["samples"] for row in told["rows"]) == len(rows)
    assert [row["version"] for row in told["rows"]] == [1, 2]
