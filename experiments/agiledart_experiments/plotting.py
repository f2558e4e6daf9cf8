"""Draws a report as a picture. matplotlib is imported here, when somebody asks for one."""

from agiledart_experiments.registry import Experiment
from agiledart_experiments.report import Report
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
    groups = list(dict.fromkeys(row.get(experiment.series) for row in report.rows)) if experiment.series else [None]
    for group in groups:
        rows = [row for row in report.rows if not experiment.series or row[experiment.series] == group]
        for name in experiment.y:
            label = name if group is None else f"{name}, {group}"
            points = [(row[experiment.x], row[name]) for row in rows if row.get(name) is not None]
            axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)
            published = [
                (row[experiment.x], row[f"{name}_published"])
                for row in rows
                if row.get(f"{name}_published") is not None
            ]
            if published:
                axes.plot(
                    [x for x, _ in published], [y for _, y in published], linestyle="--", label=f"{label}, published"
                )
    axes.set_xlabel(experiment.x)
    axes.set_title(f"{experiment.name}: {experiment.source}", fontsize=9)
    axes.legend(fontsize=8)
    axes.grid(visible=True, alpha=0.3)
    figure.savefig(file, dpi=150)
