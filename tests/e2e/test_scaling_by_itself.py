"""A stage scales by itself on real agents: four times the rate, and instances come; the rate falls back, and they go."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.elastic import Elastic, Feeder, undisturbed
from tests.e2e.mesh import Mesh, mesh, wait_for
from tests.ports import lasting_port

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("plug")]

MOST_ROWS = 30_000
SLOWLY, FAST = 40, 160
"""Rows a second; the step waits 10 ms for each, so one instance can do less than 100."""

WAITING_ROWS = 400
"""Half a second of what four instances can do, and what changes between two reports of a source and a step."""

LASTING_SECONDS = 4.0
"""Twice as long as a report is old."""


@pytest.fixture(scope="module")
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "1")
        patch.setenv("AGILEDART_AGENT__SCALING_INTERVAL", "1")
        with mesh(3) as made:
            yield made


@contextlib.contextmanager
def fed(ring: Mesh, folder: Path, name: str) -> Iterator[tuple[Elastic, Feeder]]:
    port = lasting_port()
    source = f"tcp:127.0.0.1:{port}?listen=1&overload=spool"
    job = Elastic(ring, folder, name, "--parallelism", "sums=1..4", source=source, pause_ms=10)
    feeder = Feeder(port, MOST_ROWS)
    feeder.start()
    try:
        yield job, feeder
    finally:
        feeder.close()


def watched(job: Elastic, holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a state, and look all the time at what lies before the step.

    During a change, hosts report at different moments which instance counts the rows: rows that wait there do so for
    longer than that.
    """
    low = time.monotonic()

    def look() -> bool:
        nonlocal low
        before = job.before_step()
        if before is None or before <= WAITING_ROWS:
            low = time.monotonic()
        assert time.monotonic() - low < LASTING_SECONDS, (
            f"{before:,} rows have left the source and wait before the step"
        )
        return holds()

    wait_for(look, seconds, what)


@pytest.mark.parametrize("shrinks", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_instances_follow_the_rate_up_and_down(ring: Mesh, tmp_path: Path, shrinks: bool) -> None:
    expected = undisturbed(tmp_path, MOST_ROWS).splitlines(keepends=True)
    with fed(ring, tmp_path, f"elastic-{shrinks}".lower()) as (job, feeder):
        assert job.instances() == 1
        job.cli("scale", job.name, "sums", "auto")
        feeder.rate = SLOWLY
        watched(job, lambda: job.committed() >= 2, 60, "epochs are committed")
        feeder.rate = FAST
        watched(job, lambda: job.instances() >= 2, 90, "instances come")
        epoch = job.committed()
        watched(job, lambda: job.committed() >= epoch + 3, 30, "epochs go on with them")
        if shrinks:
            feeder.rate = SLOWLY
            watched(job, lambda: job.instances() == 1, 180, "instances go")
            epoch = job.committed()
            watched(job, lambda: job.committed() >= epoch + 3, 30, "epochs go on without them")
        changes = job.changes()
        feeder.send_up_to(feeder.sent)
        wait_for(lambda: job.read() == feeder.sent, 60, "the source has read all")
    over = job.until_over()
    assert (over["state"], over["reason"]) == ("finished", "")
    assert all(one["state"] in ("done", "running") for one in changes), changes
    assert all(one["reason"].startswith("secant: ") for one in changes)
    assert not any("restarted, attempt" in entry["text"] for entry in over["history"]), "in one life"
    rows = job.out.read_text().splitlines(keepends=True)
    assert len(rows) == feeder.sent
    assert rows == expected[: len(rows)]
