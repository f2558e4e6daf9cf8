"""When a hostile run may call a ring quiet again, and when its checkers must allow for two rings."""

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_simulation.runs.ring_run import RingRun
from agiledart_simulation.runs.scenario import draw
from agiledart_simulation.world.faults import Clog, HoldMessages


def run_of(nodes: int) -> RingRun:
    options = {"nodes": nodes, "id_bits": 128, "leaf_count": 8, "kinds": ("swizzle",), "zones": 0, "permanent": "none"}
    run = RingRun(draw(1, name="partitions", fixed=options))
    run._build()
    run.ring.world.run_for(3 * SECOND)
    return run


def test_a_member_without_a_lease_among_wrong_neighbours_is_not_quiet() -> None:
    """All keys may be owned without it; messages that come late could give it its old keys back (partitions, seed 320)."""
    run = run_of(4)
    assert run._is_quiet()
    before, lost, after, _ = run.ring.machines
    now, long = run.ring.world.now, run.ring.world.now + 60 * SECOND
    before._view.agreed.successor.confirm_neighbour(after.me, now, long, long)
    after._view.agreed.predecessor.confirm_neighbour(before.me, now, long, long)
    lost._view.agreed.predecessor.lease = lost._view.agreed.successor.lease = 0
    run.owners.check_all()
    assert run.owners.is_complete
    assert any(line.startswith("ring: ") for line in run._ring_faults())


def test_links_held_one_by_one_partition_the_members() -> None:
    """Two nodes that are silent to each other for longer than a lease are a ring each (swarm, seed 278)."""
    run = run_of(3)
    one, *others = run.hostile.ids
    run.hostile.do(HoldMessages(one, others[0], 5 * SECOND))
    assert run.owners.is_whole
    run.hostile.do(HoldMessages(others[1], one, SECOND))
    assert run.owners.is_whole, "it is released before a lease ends"
    run.hostile.do(HoldMessages(others[1], one, 5 * SECOND))
    assert not run.owners.is_whole


def test_a_second_closed_link_of_a_node_excuses_false_alarms_about_it() -> None:
    """It may be a helper's link, which would have reported the first link's other end alive (partitions, seed 810015)."""
    run = run_of(8)
    run.ring.world.run_for(10 * SECOND)
    hostile = run.hostile
    ends: list[NodeId] = []
    while len(set(ends)) == len(ends):
        assert all(hostile.is_calm(one, other) for one in hostile.ids for other in hostile.ids), (
            "links apart excuse nothing"
        )
        assert hostile.act("clog")
        fault = hostile.faults[-1][1]
        assert isinstance(fault, Clog)
        ends += [fault.source, fault.target]
    shared = {one for one in ends if ends.count(one) > 1}
    for one in hostile.ids:
        for other in hostile.ids:
            assert hostile.is_calm(one, other) == (one not in shared and other not in shared)


def test_a_closed_link_excuses_false_alarms_while_separate_rings_merge() -> None:
    """A node that could report the other end alive may still be in another ring (partitions, seed 700012)."""
    run = run_of(3)
    hostile, world, config = run.hostile, run.ring.world, run.ring.config
    assert hostile.act("partition")
    world.run_for(35 * SECOND)  # healed after 30 s at most, and others are forgiven for 4 s more
    one, other = hostile.ids[:2]
    hostile.disturb_network(0)
    world.run_for(4 * SECOND)
    assert hostile.is_calm(one, other), "without a closed link nothing is excused any more"
    hostile.clogged[one] = world.now + 60 * SECOND
    assert not hostile.is_calm(one, other)
    world.run_for(config.heal_interval_ns + config.merge_after_ns)
    assert hostile.is_calm(one, other), "they have had time to find together"
