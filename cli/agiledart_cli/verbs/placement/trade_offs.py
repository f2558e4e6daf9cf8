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
        for result in comparison.results:
            if result.evaluation is None:
                continue
            metrics = result.evaluation.metrics
            y = metrics.usage if metric == "usage" else metrics.availability
            axis.scatter(metrics.response_ms, y, marker="o" if result.is_feasible else "x")
            axis.annotate(result.strategy, (metrics.response_ms, y), fontsize=7)
        axis.set_xlabel("response time, ms")
        axis.set_ylabel(label)
    figure.suptitle("crosses: not feasible")
    figure.savefig(file, bbox_inches="tight")
    pyplot.close(figure)
