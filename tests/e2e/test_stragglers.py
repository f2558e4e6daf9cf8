"""An executor that gets a twentieth of a core is left for another node within half a minute, and the result is exact."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.elastic import Elastic, undisturbed
from tests.e2e.mesh import Mesh, executors_of, mesh, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("plug")]

READINGS = 90_000
AWAKE_SECONDS, ASLEEP_SECONDS = 0.05, 0.95
BOUND_SECONDS = 30.0


@pytest.fixture
def ring() -> Iterator[Mesh]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGILEDART_AGENT__CHECKPOINT_INTERVAL", "2")
        with mesh(0) as made:
            made.grow_on(*range(1, 6))
            yield made


class Slowed:
    """Processes that are stopped and woken in turns, from a thread of its own; a context manager."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Slowed":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            self._tell(signal.SIGSTOP)
            self._over.wait(ASLEEP_SECONDS)
            self._tell(signal.SIGCONT)
            time.sleep(AWAKE_SECONDS)

    def _tell(self, what: signal.Signals) -> None:
        for pid in self._pids:
            try:
                os.kill(pid, what)
            except ProcessLookupError:
                continue


def test_an_executor_with_a_twentieth_of_a_core_is_abandoned(ring: Mesh, tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, READINGS)
    source = f"csv:{tmp_path / 'rows.csv'}?speed=1"
    job = Elastic(ring, tmp_path, "slow", "--parallelism", "sums=3..4", source=source, pause_ms=1)
    job.cli("scale", "slow", "sums", "auto")
    wait_for(lambda: job.committed() >= 2, 60, "committed epochs")
    placed = job.status()["placement"]["sums"]
    victim = next(name for name in placed if name != "a1")
    with Slowed(executors_of(ring.agent(victim))):
        began = time.monotonic()
        wait_for(lambda: victim not in (job.status()["placement"].get("sums") or [victim]), 90, f"{victim} is left")
        took = time.monotonic() - began
    over = job.until_over()
    assert (over["state"], over["reason"]) == ("finished", "")
    assert job.out.read_text() == expected
    assert took <= BOUND_SECONDS, f"it took {took:.1f} s; {job.scaling()['changes']}"
