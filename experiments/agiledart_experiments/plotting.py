"""Draws a report as a picture. matplotlib is imported here, when somebody asks for one."""

from pathlib import Path

from agiledart_experiments.registry import SHARE, Experiment
from agiledart_experiments.report import ExperimentReport, Row
from agiledart_kernel.errors import ConfigurationError, OperationFailed

SUFFIXES = (".png", ".svg", ".pdf")

Points = tuple[tuple[float, ...], tuple[float, ...]]
"""Values of x, and of y."""


def check_plot(file: str) -> None:
    """Raises what `plot` would raise, before hours are spent on figures."""
    if not file.endswith(SUFFIXES):
        raise ConfigurationError(f"--plot {file}: the name must end in {', '.join(SUFFIXES)}.")
    if not Path(file).absolute().parent.is_dir():
        raise OperationFailed(f"--plot {file} cannot be written: there is no such folder.")
    try:
        import matplotlib  # noqa: F401  only whether it is there
    except ImportError:
        raise OperationFailed("--plot needs matplotlib:  pip install matplotlib") from None


def plot(experiment: Experiment, report: ExperimentReport, file: str) -> None:
    """Lines over the experiment's x axis, one for each figure and series; published values dashed where a row has them."""
    check_plot(file)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    shown: dict[Points, None] = {}
    for group, rows in _groups(experiment, report.rows).items():
        for name in experiment.y:
            label = ", ".join((name, *group))
            line = axes.plot(*_points(rows, experiment.x, name), marker="o", label=label)[0]
            published = _points(rows, experiment.x, f"{name}_published")
            if published[0] and published not in shown:
                shown[published] = None
                axes.plot(*published, linestyle="--", marker="x", color=line.get_color(), label=f"{label}, published")
    if experiment.is_log:
        axes.set_xscale("log")
    if experiment.unit != SHARE:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(experiment.x)
    axes.set_ylabel(experiment.unit)
    axes.set_title(f"{experiment.name}: {experiment.source}", fontsize=9)
    axes.legend(fontsize=8)
    axes.grid(visible=True, alpha=0.3)
    try:
        figure.savefig(file, dpi=150)
    except OSError as error:
        raise OperationFailed(f"--plot {file} cannot be written: {error.strerror}") from None


def _points(rows: list[Row], x: str, y: str) -> Points:
    """Both columns, where the second one says something."""
    points = [(row[x], row[y]) for row in rows if row.get(y) is not None]
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _groups(experiment: Experiment, rows: tuple[Row, ...]) -> dict[tuple[str, ...], list[Row]]:
    """Rows by what tells lines apart."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[column]) for column in experiment.series), []).append(row)
    return groups
