"""One turn of ours: the mesh and job of the experiment `pull-the-plug`; one host of its state is killed once."""

import signal
import time
from collections.abc import Callable
from typing import Final

from agiledart_experiments.recovery.plug_ledger import ledger, recovered
from agiledart_experiments.recovery.plug_mesh import plug_mesh
from agiledart_experiments.recovery.pull_the_plug import MACHINES, host_of_state, submit, until_loaded
from agiledart_experiments.recovery.sink_watch import SinkWatch
from agiledart_experiments.report import Settings
from agiledart_kernel.randomness import RandomStream
from benchmarks.engines.recovery.failure_runs import (
    TIMEOUT_S,
    FailureRun,
    PrintLine,
    RecoveryLoad,
    Victim,
    gently,
    strike,
)
from benchmarks.engines.recovery.usage import Usage

INPUT_SECONDS: Final = 900
"""Of the file; a turn takes a sixth of it where nothing else runs."""


class Comeback:
    """Observer of the job's recovery. The file may have been truncated unseen, or not at all. In that case the next result is the
    first row beyond those in the file at the end of the recovery.

    Args:
        watch: over the sink's file.
        recovered: whether the recovery has ended; None: not yet.
    """

    def __init__(self, watch: SinkWatch, recovered: Callable[[], object | None]) -> None:
        self._watch, self._recovered = watch, recovered
        self._ended: float | None = None

    def is_committed(self) -> object | None:
        """Tell whether the recovery has ended, including its final commit."""
        has_recovered = self._recovered()
        if has_recovered is not None and self._ended is None:
            self._ended = time.monotonic()
        return has_recovered

    def next_result(self, since: float) -> float | None:
        """Return the seconds from a moment to the next result; None: not yet."""
        came = self._watch.next_result(since, self._ended)
        if came is None and self._ended is None:
            gently(self.is_committed)
        return came


def turn(number: int, load: RecoveryLoad, random: RandomStream, print_line: PrintLine) -> FailureRun:
    """Carry out a turn: start, load, kill, stop, compare."""
    with Usage() as usage, plug_mesh(MACHINES, load.interval) as mesh:
        submit(mesh, load.scale, INPUT_SECONDS)
        with SinkWatch(mesh.folder / "out.csv") as watch:
            until_loaded(mesh, load.scale, Settings(progress=print_line), TIMEOUT_S)

            def choose() -> Victim:
                machine = host_of_state(mesh, random)
                observers = [other for other in mesh.machines if other is not machine]
                before = mesh.total("agiledart_recovery_", observers)

                def restart() -> None:
                    machine.kill_and_remove()
                    machine.start()

                back = Comeback(watch, lambda: recovered(mesh, observers, before))
                return Victim(lambda: machine.signal(signal.SIGKILL), back.is_committed, back.next_result, restart)

            struck = strike(usage, random, load.interval, choose)
        mesh.ask("stop", "plug")
        rows = ledger(mesh.folder)
    return FailureRun("ours", number, struck, rows["rows"], rows["lost"], rows["twice"])
