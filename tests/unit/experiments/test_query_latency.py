"""`query-latency`: its statistics, its input, and its choice of applications; a run on agents is slow."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from agiledart_experiments import query_latency
from agiledart_experiments.query_latency import digest, quantile
from agiledart_experiments.report import Settings
from agiledart_kernel.errors import ConfigurationError
from tests.e2e.mesh import cli


def test_quantiles_are_values_that_occurred() -> None:
    delays = [float(n) for n in range(1, 101)]
    assert [quantile(delays, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50.0, 95.0, 99.0, 100.0]
    assert quantile([7.0], 0.99) == 7.0
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0


def test_a_digest_knows_order_and_borders_of_cells() -> None:
    assert digest([["a", "b"]]) == digest([["a", "b"]])
    assert len({digest(rows) for rows in ([["a", "b"]], [["ab"]], [["b", "a"]], [["a"], ["b"]], [])}) == 5


def test_the_input_lasts_as_long_as_asked(tmp_path: Path) -> None:
    file = tmp_path / "trips.csv"
    speed = query_latency._write_trips(file, 900, 3, seed=2)
    lines = file.read_text().splitlines()
    first, last = (datetime.fromisoformat(line.split(",")[3]) for line in (lines[0], lines[-1]))
    assert len(lines) == 900
    assert (last - first).total_seconds() / speed == pytest.approx(3.0)


def test_an_unknown_application_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it has frequent-routes, profitable-areas"):
        query_latency.run(Settings(apps=("etl",)))


@pytest.mark.e2e
@pytest.mark.slow
def test_a_run_on_three_agents() -> None:
    words = ("experiment", "run", "query-latency", "--app", "frequent-routes", "--rates", "100", "-o", "json")
    ran = cli(*words)
    assert ran.returncode == 0, ran.stderr
    (row,) = json.loads(ran.stdout)["results"]
    assert row["app"] == "frequent-routes"
    assert row["is_equal"]
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
    assert row["cpu_s"] > 0
