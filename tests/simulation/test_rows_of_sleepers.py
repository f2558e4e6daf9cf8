"""Three adjacent nodes fall silent together, and the one in the middle still holds leases of the other two."""

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_simulation.world.overlay_ring import simulated_ids
from tests.simulation.bed import Bed


def test_the_gap_over_a_row_stays_open_while_its_middle_may_deliver() -> None:
    """The outer two get no leases from the rest for a while before they sleep: their leases end early."""
    bed = Bed(4)
    ids = sorted(simulated_ids(4, 8))
    for index, node in enumerate(ids):
        bed.start(node, ids[: min(index, 2)])
        bed.world.run_for(SECOND // 4)
    bed.settle(20 * SECOND)
    row = ids[2:5]
    for inner, outer in ((row[0], ids[1]), (row[2], ids[5])):
        bed.world.network.clog(inner, outer)
        bed.world.network.clog(outer, inner)
    bed.world.run_for(500 * MILLISECOND)
    for node in row:
        bed.world.pause(node, 5 * SECOND)
    bed.world.run_for(4_500 * MILLISECOND)
    assert bed.owners.violations == []
