"""One turn of Flink: a cluster of two TaskManagers with the same keys, bytes, rows and pace, one of which is killed once.

Each TaskManager has slots for the whole job, so the survivor takes over at once what the other ran. The killed one has state,
and neither source nor sink, as with ours.
"""

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agiledart_experiments.recovery.plug_mesh import until
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.randomness import RandomStream
from benchmarks.engines.recovery.attempt_rows import AttemptRowsWatch, ledger, readings
from benchmarks.engines.recovery.failure_runs import (
    TIMEOUT_S,
    FailureRun,
    PrintLine,
    RecoveryLoad,
    Strike,
    Victim,
    gently,
    strike,
)
from benchmarks.engines.recovery.flink_cluster import flink_cluster
from benchmarks.engines.recovery.usage import Usage

TASK_MANAGERS: Final = ("tm1", "tm2")
STAGE: Final = "sums"


def turn(
    name: str, settings: Mapping[str, str], number: int, load: RecoveryLoad, random: RandomStream, print_line: PrintLine
) -> FailureRun:
    """Carry out a turn: start, load, kill, stop, compare. When it fails, Flink's files stay for a diagnosis."""
    folder = Path(tempfile.mkdtemp(prefix="flink-"))
    try:
        struck = _struck(folder, settings, load, random, print_line)
        rows = ledger(folder.glob("out-*.csv"), readings(load.keys, load.load_ms, load.rows_a_second))
    except OperationFailed:
        print_line(f"logs are kept: {folder}")
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return FailureRun(name, number, struck, rows["rows"], rows["lost"], rows["twice"])


def _struck(
    folder: Path, settings: Mapping[str, str], load: RecoveryLoad, random: RandomStream, print_line: PrintLine
) -> Strike:
    slots = len(TASK_MANAGERS)
    job = [str(word) for word in (folder, load.keys, load.padding_bytes, load.load_ms, load.rows_a_second, slots)]
    with (
        Usage() as usage,
        flink_cluster(folder, slots, load.interval, settings) as cluster,
        AttemptRowsWatch(folder) as watch,
    ):
        cluster.start(job, TASK_MANAGERS)
        print_line(f"{load.keys:,} keys come")
        until(lambda: watch.has_come(load.load_ms), TIMEOUT_S, "every key has come")
        loaded_ms = time.time() * 1_000
        until(
            lambda: gently(lambda: cluster.last_began_ms() > loaded_ms or None),
            TIMEOUT_S,
            "a checkpoint with the whole state is complete",
        )

        def choose() -> Victim:
            victim, last = host_of_state(cluster.hosts()), cluster.checkpoints()
            return Victim(
                lambda: cluster.kill_task_manager(victim),
                lambda: cluster.checkpoints() > last or None,
                watch.next_result,
                lambda: cluster.start_task_manager(victim),
            )

        struck = strike(usage, random, load.interval, choose)
        cluster.stop_job()
    return struck


def host_of_state(hosts: Mapping[str, list[str]]) -> str:
    """Return the TaskManager that has state and nothing else. Raises `OperationFailed` when there is none."""
    others = {host for name, places in hosts.items() if name != STAGE for host in places}
    candidates = [host for host in hosts[STAGE] if host not in others]
    if not candidates:
        raise OperationFailed(f"Flink runs {hosts}: no TaskManager has state and neither source nor sink")
    return candidates[0]
