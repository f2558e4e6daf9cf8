"""Rings of one process, one after the other, do not add up in memory."""

import gc

from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_simulation.runs.scheduling_run import RunOptions, run_submissions

NODES = 20


def machines() -> int:
    return sum(isinstance(one, OverlayMachine) for one in gc.get_objects())


def test_garbage_of_one_ring_is_collected_before_the_next() -> None:
    gc.collect()
    before = machines()
    gc.disable()  # as in a run that may not be interrupted
    try:
        for seed in range(3):
            run_submissions(RunOptions(nodes=NODES, zones=2, applications=1, seed=seed))
        assert machines() - before <= NODES
    finally:
        gc.enable()
