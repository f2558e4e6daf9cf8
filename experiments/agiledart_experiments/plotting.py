"""Draw a report as a picture. matplotlib is imported only when a caller asks for a picture."""

from pathlib import Path

from agiledart_experiments.registry import SHARE, Experiment
from agiledart_experiments.report import ORIGINS, ExperimentReport, Row
from agiledart_kernel.errors import ConfigurationError, OperationFailed

SUFFIXES = (".png", ".svg", ".pdf")

Points = tuple[tuple[float, ...], tuple[float, ...]]
"""Values of x, and values of y."""


def check_plot(file: str) -> None:
    """Check that `plot` can write this file, before the experiment spends hours on figures.

    Raises:
        ConfigurationError: the suffix of the file is not supported.
        OperationFailed: the folder does not exist, or matplotlib is not installed.
    """
    if not file.endswith(SUFFIXES):
        raise ConfigurationError(f"--plot {file}: the name must end in {', '.join(SUFFIXES)}.")
    if not Path(file).absolute().parent.is_dir():
        raise OperationFailed(f"--plot {file} cannot be written: its folder does not exist.")
    try:
        import matplotlib  # noqa: F401  checks that it is installed
    except ImportError:
        raise OperationFailed("--plot needs matplotlib:  pip install matplotlib") from None


def plot(experiment: Experiment, report: ExperimentReport, file: str) -> None:
    """Draw one line for each figure and series over the experiment's x axis; values to compare with are dashed."""
    check_plot(file)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    shown: dict[Points, None] = {}
    for group, rows in _groups(experiment, report.rows).items():
        for name in experiment.y:
            label = ", ".join((name, *group))
            line = axes.plot(*_points(rows, experiment.x, name), marker="o", label=label)[0]
            for ending, origin in ORIGINS.items():
                theirs = _points(rows, experiment.x, f"{name}_{ending}")
                if theirs[0] and theirs not in shown:
                    shown[theirs] = None
                    axes.plot(*theirs, linestyle="--", marker="x", color=line.get_color(), label=f"{label}, {origin}")
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
    """Return the values of both columns, without the rows where `y` is missing."""
    points = [(row[x], row[y]) for row in rows if row.get(y) is not None]
    return tuple(x for x, _ in points), tuple(y for _, y in points)


def _groups(experiment: Experiment, rows: tuple[Row, ...]) -> dict[tuple[str, ...], list[Row]]:
    """Group the rows by the columns that distinguish the lines of the plot."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[column]) for column in experiment.series), []).append(row)
    return groups
