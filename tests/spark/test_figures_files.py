"""Many runs of an experiment, reduced by PySpark; means and intervals against plain Python."""

from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from agiledart_experiments.figures_files import half_interval, reduced, write_figures
from agiledart_experiments.registry import find
from agiledart_kernel.errors import ConfigurationError

pytestmark = [pytest.mark.xdist_group("spark")]


def test_intervals() -> None:
    assert half_interval(2.0, 1) is None
    assert half_interval(2.0, 4) == pytest.approx(3.182 * 2.0 / 2)
    assert half_interval(2.0, 100) == pytest.approx(0.392)


@pytest.mark.slow
def test_runs_are_reduced_to_means_and_intervals(spark: Any, tmp_path: Path) -> None:
    experiment = find("hop-count")
    runs = {
        seed: [{experiment.x: size, "hops": size / 100 + seed, "rule": "pastry"} for size in (100, 1000)]
        for seed in range(5)
    }
    for seed, rows in runs.items():
        write_figures(tmp_path / str(seed % 2), experiment.name, seed, rows)
    write_figures(tmp_path / "0", experiment.name, 5, [{experiment.x: 100, "hops": None, "rule": "pastry", "extra": 1}])
    lines = reduced(spark, [str(tmp_path / "0"), str(tmp_path / "1")], experiment)
    assert [line[experiment.x] for line in lines] == [100, 1000]
    values = [100 / 100 + seed for seed in range(5)]
    assert lines[0]["runs"] == 6
    assert lines[0]["hops"] == pytest.approx(mean(values))
    assert lines[0]["hops ±"] == pytest.approx(2.776 * stdev(values) / sqrt(5))
    assert (lines[0]["extra"], lines[0]["extra ±"]) == (1.0, None)
    with pytest.raises(ConfigurationError, match="has no runs of churn"):
        reduced(spark, [str(tmp_path / "0")], find("churn"))
