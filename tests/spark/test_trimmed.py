"""A log that was trimmed below the place where a query stands, through a real JVM: one sentence, once, and the way out works."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import mesh
from tests.spark.kills import Driver, driver
from tests.spark.written import BATCHES, Written, copied, reader_token, submit, wait_for_end

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def quiet_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    with driver(tmp_path_factory.mktemp("driver")) as made:
        yield made


@pytest.mark.soak
def test_a_query_starts_at_the_first_kept_row(quiet_driver: Driver, tmp_path: Path) -> None:
    with mesh(1) as made:
        agent = made.agents[0]
        log = "log:small?max_bytes=64KiB@a1"
        submit(agent, "taxi:?count=200@a1", log, "small")
        assert wait_for_end(agent, "small") == "finished"
        written = Written(agent, reader_token(agent, tmp_path / "reader.token"), "small")
        quiet_driver.begin(tmp_path, written, BATCHES, 0, 1_000)
        read = quiet_driver.end()["rows"]
        assert read == written.committed() == copied(tmp_path / "copy", BATCHES).total()

        submit(agent, "taxi:?count=4000&seed=2@a1", log, "small")
        assert wait_for_end(agent, "small") == "finished"
        with written.client() as client:
            [kept] = client.ends("small").partitions
        assert read < kept.first < kept.committed

        earlier = quiet_driver.said()
        quiet_driver.begin(tmp_path, written, BATCHES, 0, 1_000)
        failed = quiet_driver.answer()
        gone = f"{kept.first - read:,} rows ({read} to {kept.first}) of the sink small/0"
        assert failed["error"].startswith(f"{gone} were removed by the log's retention")
        assert "failOnDataLoss" in failed["error"]
        assert failed["error"].endswith(".")
        assert "planPartitions" in failed["whole"], "it is said when the batch is planned, not by every try of a task"
        assert failed["whole"].count("were removed by") <= 2  # the sentence, and the traceback that ends in it
        assert quiet_driver.said()[len(earlier) :].count("were removed by") <= 2

        earlier = quiet_driver.said()
        quiet_driver.begin(tmp_path, written, BATCHES, 0, 1_000, failOnDataLoss="false")
        assert quiet_driver.end()["rows"] == kept.committed - kept.first
        told = re.findall(r"agiledart: .*", quiet_driver.said()[len(earlier) :])
        assert told == [f"agiledart: {gone} are gone; reading goes on at {kept.first} (failOnDataLoss=false)"]
        now = copied(tmp_path / "copy", BATCHES)
        assert now.total() == read + kept.committed - kept.first
        assert written.rows() - now == type(now)()
