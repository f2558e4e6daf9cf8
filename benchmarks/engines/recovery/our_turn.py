"""One turn of ours: the mesh and the job of the experiment `pull-the-plug`, one host of whose state is killed once."""

import signal
from typing import Final

from agiledart_experiments.recovery.plug_account import ledger, recovered
from agiledart_experiments.recovery.plug_mesh import plug_mesh
from agiledart_experiments.recovery.pull_the_plug import MACHINES, host_of_state, submit, until_loaded
from agiledart_experiments.recovery.sink_watch import SinkWatch
from agiledart_experiments.report import Settings
from agiledart_kernel.randomness import RandomStream
from benchmarks.engines.recovery.turns import PATIENCE, Load, Say, Turn, Victim, strike
from benchmarks.engines.recovery.usage import Usage

INPUT_SECONDS: Final = 900
"""Of the file; a turn takes a sixth of it where nothing else runs."""


def turn(number: int, load: Load, random: RandomStream, say: Say) -> Turn:
    """Start, load, kill, stop, compare."""
    with Usage() as usage, plug_mesh(MACHINES, load.interval) as mesh:
        submit(mesh, load.scale, INPUT_SECONDS)
        with SinkWatch(mesh.folder / "out.csv") as watch:
            until_loaded(mesh, load.scale, Settings(progress=say), PATIENCE)

            def choose() -> Victim:
                machine = host_of_state(mesh, random)
                judges = [one for one in mesh.machines if one is not machine]
                before = mesh.total("agiledart_recovery_", judges)

                def restart() -> None:
                    machine.bury()
                    machine.start()

                return Victim(
                    lambda: machine.signal(signal.SIGKILL),
                    lambda: recovered(mesh, judges, before),
                    watch.next_result,
                    restart,
                )

            struck = strike(usage, random, load.interval, choose)
        mesh.ask("stop", "plug")
        told = ledger(mesh.folder)
    return Turn("ours", number, struck, told["rows"], told["lost"], told["twice"])
