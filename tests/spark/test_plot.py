"""`analytics run --plot`: a picture of a result, and one line where matplotlib is not installed."""

import importlib.util
import sys
from datetime import datetime
from pathlib import Path

import pytest

from agiledart_analytics.job_run import JobResult
from agiledart_analytics.jobs import JOBS
from agiledart_analytics.plotting import check_plot, plot
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from tests.e2e.mesh import cli

OUTCOME = JobResult(
    ("window_start", "trips", "revenue_cents", "mean_cents"),
    tuple((datetime.fromisoformat(f"2013-01-01 {hour:02}:00:00"), hour, 100 * hour, 5.0) for hour in range(24)),
    24,
    "",
)
JOB = JOBS["revenue"]

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None,
    reason="matplotlib is not installed, no picture is drawn:  pip install -e '.[dev,spark,plot]'",
)


@needs_matplotlib
@pytest.mark.parametrize(("name", "magic"), [("out.png", b"\x89PNG"), ("out.svg", b"<?xml")])
def test_a_picture_is_drawn(tmp_path: Path, name: str, magic: bytes) -> None:
    check_plot(str(tmp_path / name))
    plot(OUTCOME, JOB, str(tmp_path / name))
    assert (tmp_path / name).read_bytes().startswith(magic)


@needs_matplotlib
def test_every_job_has_a_column_to_draw(tmp_path: Path) -> None:
    for job in JOBS.values():
        columns = ("day", "area", job.measure)
        plot(
            JobResult(columns, (("2013-01-01", "1.1", 7), ("2013-01-02", "1.2", None)), 2, ""),
            job,
            str(tmp_path / "x.png"),
        )
        plot(JobResult(columns, (), 0, ""), job, str(tmp_path / "none.png"))


@needs_matplotlib
def test_an_undrawable_file_is_reported_before_spark_starts(tmp_path: Path) -> None:
    for file, said in (("out.docx", "docx"), (str(tmp_path / "none" / "x.png"), "no folder"), ("picture", "ending")):
        ran = cli("analytics", "run", "revenue", "--parquet", str(tmp_path), "--plot", file, cwd=tmp_path)
        assert ran.returncode == 2
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr
        assert "starting Spark" not in ran.stderr
        assert ran.stderr.strip().endswith(".")
    with pytest.raises(ConfigurationError, match="png"):
        check_plot("out.docx")


def test_missing_matplotlib_is_reported_in_one_line_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("matplotlib", "matplotlib.backend_bases"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        OperationFailed, match=r"^--plot needs matplotlib. Install it:  pip install 'agiledart\[plot\]'$"
    ):
        check_plot(str(tmp_path / "out.png"))
