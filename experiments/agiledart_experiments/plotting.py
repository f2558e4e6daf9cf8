"""Draws a report as a picture. matplotlib is imported here, when somebody asks for one."""

from agiledart_experiments.registry import Experiment
from agiledart_experiments.report import Report, Row
from agiledart_kernel.errors import ConfigurationError, OperationFailed

SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(file: str) -> None:
    """Raises what `plot` would raise, before hours are spent on figures."""
    if not file.endswith(SUFFIXES):
        raise ConfigurationError(f"--plot {file}: the name must end in {', '.join(SUFFIXES)}.")
    try:
        import matplotlib  # noqa: F401  only whether it is there
    except ImportError:
        raise OperationFailed("--plot needs matplotlib:  pip install matplotlib") from None


def plot(experiment: Experiment, report: Report, file: str) -> None:
    """Lines over the experiment's x axis, one for each figure and series; published values dashed where a row has them."""
    check_plot(file)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for group, rows in _groups(experiment, report.rows).items():
        for name in experiment.y:
            label = ", ".join((name, *group))
            points = [(row[experiment.x], row[name]) for row in rows if row.get(name) is not None]
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
            known = f"{name}_published"
            published = [(row[experiment.x], row[known]) for row in rows if row.get(known) is not None]
            if published:
                axes.plot(
                    [x for x, _ in published],
                    [y for _, y in published],
                    linestyle="--",
                    marker="x",
                    label=f"{label}, published",
                )
    axes.set_xlabel(experiment.x)
    axes.set_title(f"{experiment.name}: {experiment.source}", fontsize=9)
    axes.legend(fontsize=8)
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(file, dpi=150)


def _groups(experiment: Experiment, rows: tuple[Row, ...]) -> dict[tuple[str, ...], list[Row]]:
    """Rows by what tells lines apart."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row[column]) for column in experiment.series), []).append(row)
    return groups
