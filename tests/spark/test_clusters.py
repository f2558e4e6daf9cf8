"""The unchanged source on a standalone cluster, installed or shipped, and through Spark Connect."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.mesh import cli
from tests.spark.clusters import Standalone, bare_python, connect_server, environment, standalone
from tests.spark.kills import Round, driver, kill_executor
from tests.spark.written import BATCHES, Written, copied

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

CENTS = 9
"""Place of `total_cents` in a clean trip."""

COUNT = """
import sys
from agiledart.spark import ship_package, spark_session
from agiledart_analytics.job_run import spark_sentence
session = spark_session("shipped", master=sys.argv[1], log_file=sys.argv[4], config={"spark.executor.memory": "600m"})
if sys.argv[3] == "ship":
    ship_package(session)
try:
    print(session.read.format("agiledart").option("sink", "clean-trips").option("tokenFile", sys.argv[2]).load().count())
except Exception as error:
    print(spark_sentence(error))
"""

STREAM = """
import sys
from pathlib import Path
from agiledart.spark import follow, spark_session
from agiledart_analytics.job_run import copy_live
session = spark_session("stream", master=sys.argv[1])
folder = Path(sys.argv[3])
options = {"sink": "clean-trips", "tokenFile": sys.argv[2], "maxRowsPerBatch": "1000"}
print(follow(copy_live(session, options, folder / "copy", folder / "checkpoint", 0)))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with standalone(tmp_path_factory.mktemp("standalone")) as made:
        yield made


def revenue_at(master: str, written: Written) -> int:
    """Output of the ready-made job on a master."""
    ran = cli(
        *("analytics", "run", "revenue", "--master", master, "--token-file", str(written.token), "-o", "json"),
        timeout=600,
        env=without_bare(),
    )
    assert ran.returncode == 0, ran.stderr
    return sum(row["revenue_cents"] for row in json.loads(ran.stdout)["rows"])


def without_bare(**more: str) -> dict[str, str]:
    return {**{name: value for name, value in environment().items() if name != "AGILEDART_TEST_BARE"}, **more}


def expected_revenue(written: Written) -> int:
    return sum(int(row[CENTS]) * times for row, times in written.rows().items())


@pytest.mark.soak
def test_a_job_on_a_standalone_cluster(cluster: Standalone, written: Written) -> None:
    assert revenue_at(cluster.url, written) == expected_revenue(written) > 0


@pytest.mark.soak
def test_an_executor_of_a_standalone_cluster_is_killed(
    cluster: Standalone, written: Written, tmp_path: Path, keep_round: Callable[[Round], None]
) -> None:
    with driver(tmp_path, cluster.url, **{"spark.executor.memory": "600m"}) as made:
        keep_round(kill_executor(written, made, list(cluster.workers), tmp_path, 1))


@pytest.mark.soak
def test_workers_without_the_package_receive_it(cluster: Standalone, written: Written, tmp_path: Path) -> None:
    told = {}
    for choice in ("ship", "leave"):
        ran = subprocess.run(
            [sys.executable, "-c", COUNT, cluster.url, str(written.token), choice, str(tmp_path / "spark.log")],
            capture_output=True, text=True, timeout=600, check=False,
            env=without_bare(PYSPARK_PYTHON=str(bare_python(tmp_path / choice)), XDG_CACHE_HOME=str(tmp_path)),
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        told[choice] = ran.stdout.strip()
    assert told["ship"] == str(written.rows().total())
    assert told["leave"].startswith("Spark's executors do not have the package agiledart.")


needs_connect = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("grpc", "grpc_status", "zstandard")),
    reason="grpcio is not installed, Spark Connect is left out:  pip install -e '.[dev,spark,connect]'",
)


@needs_connect
@pytest.mark.soak
def test_a_job_and_a_stream_through_spark_connect(written: Written, tmp_path: Path) -> None:
    with connect_server(tmp_path) as url:
        assert revenue_at(url, written) == expected_revenue(written)
        ran = subprocess.run(
            [sys.executable, "-c", STREAM, url, str(written.token), str(tmp_path)],
            capture_output=True, text=True, timeout=600, check=False, env=without_bare(),
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.strip() == f"(3, {written.rows().total()})"
        assert copied(tmp_path / "copy", BATCHES) == written.rows()


def test_without_grpc_the_message_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    from agiledart.spark import spark_session
    from agiledart_kernel.errors import OperationFailed

    real = importlib.util.find_spec

    def find(name: str) -> Any:
        return None if name == "grpc" else real(name)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(OperationFailed, match=r"pip install 'agiledart\[spark,connect\]'"):
        spark_session(master="sc://127.0.0.1:1")
