"""The Spark part of the demo, without Spark: its messages when Spark is missing or slow."""

import io
import os
import sys
from pathlib import Path

import pytest

from agiledart_cli.demo import demo_spark
from agiledart_cli.spark_presence import unavailable_reason


@pytest.mark.parametrize("active", [True, False])
def test_a_missing_program_is_reported_with_an_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, active: bool
) -> None:
    pip = Path(sys.executable).parent / "pip" if active else tmp_path / "pip"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: str(pip))
    wanted = "pip" if active else f"{sys.executable} -m pip"
    assert unavailable_reason() == f"pyspark, pyarrow, pandas not installed:  {wanted} install 'agiledart[spark]'"


def test_the_last_line_is_the_answer_and_earlier_ones_are_progress() -> None:
    lines = demo_spark._SparkOutput(io.StringIO('{"at": "reading", "read": 1200}\n{"rows": 1234}\n'))
    assert lines.wait()
    assert lines.last == '{"rows": 1234}\n'


def test_progress_is_reported_and_silence_reaches_the_timeout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_spark, "_PROGRESS_SECONDS", 0.005)
    monkeypatch.setattr(demo_spark, "SILENT_SECONDS", 0.05)
    ours, theirs = os.pipe()
    with os.fdopen(ours) as pipe, os.fdopen(theirs, "w") as process:
        lines = demo_spark._SparkOutput(pipe)
        assert lines.progress_text() == "starting"
        process.write('{"at": "reading", "read": 1200}\n')
        process.flush()
        while not lines.last:
            pass
        assert not lines.wait()
        assert lines.progress_text() == "reading, 1,200 rows read"
        process.close()
    assert capsys.readouterr().out == ""
