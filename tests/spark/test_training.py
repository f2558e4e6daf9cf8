"""Models by MLlib: judged on a day that the training has not seen, and scored alike by Spark and by plain Python."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from agiledart.scoring import ModelDocument, read_model
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines import training
from agiledart_pipelines.template import write_project
from agiledart_pipelines.training import ModelSpecification, read_specification, train

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def trips(spark: Any) -> Any:
    return spark.range(600).selectExpr(
        "date_add(date'2013-01-07', cast(id % 3 as int)) as _day",
        "id * 0.01 + 0.1 as miles",
        "timestamp'2013-01-07 00:00:00' + make_interval(0, 0, 0, 0, cast(id % 24 as int)) as pickup_at",
        "cast(200 * (id * 0.01 + 0.1) + 7 * (id % 24) + 30 + (id * 7919) % 13 as int) as seconds",
        "cast(id * 20 + 250 as int) as fare_cents",
        "case when id % 3 = 0 then 'CSH' else 'CRD' end as payment",
        "case when id % 3 = 0 then 0 else id * 4 end as tip_cents",
    )


@pytest.mark.parametrize("name", ["durations", "tips"])
def test_spark_and_plain_python_agree(trips: Any, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project(tmp_path / "taxi", "clean-trips", "")
    specification = read_specification(tmp_path / "taxi", name)
    fitted: list[Any] = []
    exported = training._exported

    def noted(given: ModelSpecification, model: Any) -> ModelDocument:
        fitted.append(model)
        return exported(given, model)

    monkeypatch.setattr(training, "_exported", noted)
    trained = train(trips, specification)
    assert trained.held_out == "2013-01-09"
    assert (trained.rows, trained.held_out_rows) == (400, 200)
    assert trained.error < 0.5 * trained.error_of_mean
    model = read_model(trained.model.text())

    from pyspark.ml.feature import VectorAssembler

    rows = trips.selectExpr(*(f"cast({text} as double) as {key}" for key, text in specification.features.items()))
    predicted = fitted[0].transform(
        VectorAssembler(inputCols=list(specification.features), outputCol="_features").transform(rows)
    )
    for row in predicted.collect():
        assert model.score(row.asDict()) == pytest.approx(row["_prediction"], abs=1e-9)
    assert len({model.score(row.asDict()) for row in predicted.take(50)}) >= 3


def test_mistakes_are_reported(trips: Any, tmp_path: Path) -> None:
    write_project(tmp_path / "taxi", "clean-trips", "")
    with pytest.raises(ConfigurationError, match=r"There is no model tip .*the project has durations, tips"):
        read_specification(tmp_path / "taxi", "tip")
    specification = read_specification(tmp_path / "taxi", "durations")
    with pytest.raises(
        OperationFailed, match="needs rows of the held-out day and of another one; silver has rows of 2013-01-07"
    ):
        train(trips.where("_day = date'2013-01-07'"), specification)
    with pytest.raises(OperationFailed, match="held-out day"):
        train(trips, specification, date(2020, 1, 1))
