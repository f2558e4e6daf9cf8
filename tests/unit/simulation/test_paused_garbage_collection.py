"""Rings of one process, one after the other, do not add up in memory."""

import gc

from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_simulation.runs.scheduling_run import RunOptions, run_submissions

NODES = 20


def machines() -> int:
    return sum(isinstance(one, OverlayMachine) for one in gc.get_objects())


def test_what_one_ring_leaves_is_gone_when_the_next_one_begins() -> None:
    gc.collect()
    before = machines()
    gc.disable()  # as in a run that may not be interrupted
    try:
        for seed in range(3):
            run_submissions(RunOptions(nodes=NODES, zones=2, applications=1, seed=seed))
        assert machines() - before <= NODES
    finally:
        gc.enable()
