"""Plot of a result: one bar for each of its first rows. Needs the extra `[plot]`; matplotlib is imported only here."""

from pathlib import Path
from typing import Final

from agiledart_analytics.job_run import JobResult
from agiledart_analytics.jobs import AnalyticsJob
from agiledart_kernel.errors import ConfigurationError, OperationFailed

MAX_BARS: Final = 40
LABEL_COLUMNS: Final = 3


def check_plot(file: str) -> None:
    """Check that the picture can be drawn, before the start of Spark, which takes seconds.

    Raises `OperationFailed` without matplotlib, `ConfigurationError` for a file that it could not write.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise OperationFailed("--plot needs matplotlib. Install it:  pip install 'agiledart[plot]'") from None
    path = Path(file).expanduser()
    kinds = sorted(FigureCanvasBase.get_supported_filetypes())
    ending = path.suffix.removeprefix(".").lower()
    if ending not in kinds:
        wanted = f"the ending .{ending} is none that can be drawn" if ending else "the name has no ending"
        raise ConfigurationError(f"--plot {file}: {wanted}. Take one of {', '.join(kinds)}.")
    if not path.parent.is_dir():
        raise ConfigurationError(f"--plot {file}: there is no folder {path.parent}. Make it first.")


def plot(result: JobResult, job: AnalyticsJob, file: str) -> None:
    """Draw a bar chart of the job's measure. Raises `OperationFailed` when it cannot be written, or without matplotlib."""
    check_plot(file)
    from matplotlib.figure import Figure

    place = result.columns.index(job.measure)
    names = [
        index
        for index, name in enumerate(result.columns)
        if name not in ("rank", "trips", "samples") and not name.endswith("_ms") and index != place
    ][:LABEL_COLUMNS]
    shown = result.rows[:MAX_BARS]
    places = range(len(shown))  # labels may be equal; places never are
    figure = Figure(figsize=(10, max(3.0, 0.25 * len(shown))), layout="constrained")
    axes = figure.subplots()
    axes.barh(places, [float(row[place] or 0) for row in shown])
    axes.set_yticks(places, [" ".join(str(row[index]) for index in names) for row in shown])
    axes.invert_yaxis()
    left = result.total - len(shown)
    axes.set_title(job.what + (f" (the first {len(shown)} of {result.total:,} rows)" if left else ""))
    axes.set_xlabel(job.measure)
    try:
        figure.savefig(Path(file).expanduser())
    except (OSError, ValueError) as error:
        raise OperationFailed(f"{file} cannot be written: {error}. Name another file.") from None
