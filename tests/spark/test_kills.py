"""`kill -9` at random moments: of Spark's driver, of an executor, of the agent that serves the log. No row is lost or comes twice.

Each seed is a round of its own. A plain run kills an agent once; the rest are soaks, and the series is

    AGILEDART_KILLS=20 python -m pytest tests/spark/test_kills.py -s
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.mesh import Mesh, mesh
from tests.spark.kills import Driver, Round, Spare, driver, kill_agent, kill_driver, kill_executor
from tests.spark.written import Written, reader_token

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("AGILEDART_KILLS", "2"))
FIRST = int(os.environ.get("AGILEDART_KILLS_SEED", "1"))

CLUSTER = {"spark.executor.memory": "600m", "spark.deploy.maxExecutorRetries": "-1"}

Keep = Callable[[Round], None]


def seeds(fast: int) -> list[Any]:
    """The seeds of a series; all but the first `fast` are soaks."""
    later = range(FIRST + fast, FIRST + ROUNDS)
    return [
        *range(FIRST, FIRST + min(fast, ROUNDS)),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in later),
    ]


@pytest.fixture(scope="module")
def spare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spare]:
    made = Spare(tmp_path_factory.mktemp("drivers"))
    yield made
    made.kill()


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(1))
def test_a_killed_driver(written: Written, spare: Spare, tmp_path: Path, seed: int, keep_round: Keep) -> None:
    keep_round(kill_driver(written, spare, tmp_path, seed))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Two executors as processes of their own; those that are killed are replaced without limit."""
    folder = tmp_path_factory.mktemp("cluster")
    with driver(folder, "local-cluster[2,1,700]", **CLUSTER) as made:
        yield made


@pytest.mark.parametrize("seed", seeds(0))
def test_a_killed_executor(written: Written, cluster: Driver, tmp_path: Path, seed: int, keep_round: Keep) -> None:
    keep_round(kill_executor(written, cluster, [cluster.process.pid], tmp_path, seed))


@pytest.fixture(scope="module")
def holders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mesh, Written]]:
    with mesh(2) as made:
        first = made.agents[0]
        yield made, Written(first, reader_token(first, tmp_path_factory.mktemp("holders") / "reader.token"))


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.soak
def test_a_killed_agent(holders: tuple[Mesh, Written], spark: Any, tmp_path: Path, seed: int, keep_round: Keep) -> None:
    made, written = holders
    keep_round(kill_agent(spark, made.agents[1], written, tmp_path, seed))
