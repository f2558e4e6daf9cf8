"""Rows of an update are counted in full, although Spark reports progress some time after it was made."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (extra [spark])")

from agiledart_pipelines.query_progress import QueryProgress

NAME = "`catalog`.`trips`.`bronze`"


def progress_of(rows: int) -> Any:
    source = SimpleNamespace(numInputRows=rows)
    told = SimpleNamespace(name=NAME, sources=[source], durationMs={}, stateOperators=[])
    return SimpleNamespace(progress=told)


def test_late_events_are_waited_for() -> None:
    progress = QueryProgress()
    progress.begin_update()
    progress.onQueryStarted(SimpleNamespace(name=NAME, runId="1"))

    def late() -> None:
        progress.onQueryProgress(progress_of(392))
        progress.onQueryTerminated(SimpleNamespace(runId="1"))

    assert progress.rows_of("bronze") == 0  # nothing is known yet
    timer = threading.Timer(0.05, late)
    timer.start()
    assert progress.rows_of("bronze", 60) == 392
    timer.join()
    progress.begin_update()
    assert progress.rows_of("bronze") is None


def test_an_end_that_is_never_reported_does_not_keep_an_update() -> None:
    progress = QueryProgress()
    progress.onQueryStarted(SimpleNamespace(name=NAME, runId="1"))
    progress.onQueryProgress(progress_of(7))
    assert progress.rows_of("bronze", 0.01) == 7
