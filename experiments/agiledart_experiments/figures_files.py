"""Figures of many runs as Parquet files, and their reduction by PySpark to means with confidence intervals.

Each run adds one file, `DIR/experiment=NAME/seed-N-….parquet`: numbers as doubles, all else as text, so that runs of any
version fit together. pyarrow and pyspark are imported only here, inside functions.
"""

from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from agiledart_experiments.registry import Experiment
from agiledart_experiments.report import Row
from agiledart_kernel.errors import ConfigurationError, OperationFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED: Final = "_seed"

T_975: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""0.975 quantiles of Student's t distribution for 1 to 30 degrees of freedom; beyond, that of the normal one is used (1.960)."""


def write_figures(folder: Path, experiment: str, seed: int, rows: Sequence[Row]) -> Path:
    """Write the figures of one run as a file, and return it. Raises `OperationFailed` without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise OperationFailed("--events needs pyarrow. Install:  pip install 'agiledart[columns]'") from None
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    place = folder / f"experiment={experiment}"
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"seed-{seed}-{uuid4().hex[:8]}.parquet"
    pyarrow.parquet.write_table(pyarrow.table({**columns, SEED: [seed] * len(rows)}), file)
    return file


def _column(values: list[Any]) -> Any:
    import pyarrow

    if all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        return pyarrow.array([None if value is None else float(value) for value in values], pyarrow.float64())
    return pyarrow.array([None if value is None else str(value) for value in values], pyarrow.string())


def reduced(session: "SparkSession", folders: Sequence[str], experiment: Experiment) -> list[dict[str, Any]]:
    """Return one row for each x and series of an experiment: mean, half of the 95 % confidence interval, and number of runs.

    A column `NAME` becomes `NAME` and `NAME ±`; the interval of a single run is None.

    Raises `ConfigurationError` when the folders have no runs of the experiment.
    """
    from pyspark.sql import functions as f

    frame = _runs(session, folders, experiment)
    names = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    keys = [name for name in (*experiment.series, experiment.x) if name in names]
    keys += [name for name, kind in names.items() if kind == "string" and name not in keys]
    measures = [name for name, kind in names.items() if kind == "double" and name not in keys and name != SEED]
    figures = []
    for name in measures:
        figures += [f.avg(name).alias(name), f.stddev_samp(name).alias(f"{name} s"), f.count(name).alias(f"{name} n")]
    groups = frame.groupBy(*keys).agg(f.count(f.lit(1)).alias("runs"), *figures).orderBy(*keys).collect()
    return [_line(group.asDict(), keys, measures) for group in groups]


def _runs(session: "SparkSession", folders: Sequence[str], experiment: Experiment) -> "DataFrame":
    places = [
        str(path) for folder in folders for path in (Path(folder) / f"experiment={experiment.name}",) if path.is_dir()
    ]
    if not places:
        raise ConfigurationError(
            f"{', '.join(folders)} has no runs of {experiment.name}. Make some:  agiledart experiment run {experiment.name} "
            f"--seed N --events DIR"
        )
    return session.read.option("mergeSchema", "true").parquet(*places)


def _line(group: dict[str, Any], keys: Sequence[str], measures: Sequence[str]) -> dict[str, Any]:
    line: dict[str, Any] = {name: group[name] for name in keys}
    line["runs"] = group["runs"]
    for name in measures:
        line[name] = group[name]
        line[f"{name} ±"] = half_interval(group[f"{name} s"], group[f"{name} n"])
    return line


def half_interval(deviation: float | None, runs: int) -> float | None:
    """Return half of the 95 % confidence interval of a mean; None for fewer than two runs.

    Args:
        deviation: sample standard deviation.
    """
    if deviation is None or runs < 2:
        return None
    quantile = T_975[runs - 2] if runs - 2 < len(T_975) else 1.960
    return quantile * deviation / sqrt(runs)
