"""Picture of `agiledart place --compare`: response time against network usage and availability, one point a strategy."""

from pathlib import Path

from agiledart.placement.comparing import Comparison
from agiledart_kernel.errors import ConfigurationError

ENDINGS = (".png", ".svg", ".pdf")


def check_picture(file: str) -> None:
    """Check before any work that a picture can be drawn. Raises ConfigurationError."""
    if Path(file).suffix not in ENDINGS:
        raise ConfigurationError(f"--plot {file}: use a file that ends with {', '.join(ENDINGS)}.")
    if not Path(file).resolve().parent.is_dir():
        raise ConfigurationError(f"--plot {file}: there is no folder {Path(file).resolve().parent}.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ConfigurationError('--plot needs matplotlib: pip install "agiledart[plot]"') from None


def draw(comparison: Comparison, file: str) -> None:
    """Draw the trade-offs of a comparison."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.5))
    for axis, metric, label in zip(axes, ("usage", "availability"), ("network usage", "availability"), strict=True):
        for (x, y, is_feasible), names in _points(comparison, metric).items():
            axis.scatter(x, y, marker="o" if is_feasible else "x")
            axis.annotate("\n".join(names), (x, y), fontsize=7)
        axis.set_xlabel("response time, ms")
        axis.set_ylabel(label)
    figure.suptitle("crosses: not feasible")
    figure.savefig(file, bbox_inches="tight")
    pyplot.close(figure)


def _points(comparison: Comparison, metric: str) -> dict[tuple[float, float, bool], list[str]]:
    """Return the strategies at each point (response time, metric, feasible); those that agree share a label."""
    points: dict[tuple[float, float, bool], list[str]] = {}
    for result in comparison.results:
        if result.evaluation is None:
            continue
        metrics = result.evaluation.metrics
        y = metrics.usage if metric == "usage" else metrics.availability
        names = points.setdefault((round(metrics.response_ms, 3), round(y, 6), result.is_feasible), [])
        names += [] if result.strategy in names else [result.strategy]
    return points
