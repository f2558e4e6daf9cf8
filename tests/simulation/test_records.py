"""Records at their root and its leaves: compare and set, and that they survive their replicas."""

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import ID_BITS, NodeId, key_of_name, ring_distance
from agiledart_overlay.wire.events import LeaveRing, StoreRecord
from agiledart_simulation.checkers.record_ledger import RecordLedger
from agiledart_simulation.world.network import NetworkConfig
from agiledart_simulation.world.overlay_ring import OverlayRing, simulated_ids
from tests.simulation.bench import all_violations, built_ring


def by_distance(ring: OverlayRing, key: NodeId) -> list[NodeId]:
    return sorted(ring.members, key=lambda node: (ring_distance(node, key), node))


def holders(ring: OverlayRing, key: NodeId) -> list[NodeId]:
    return [machine.me.node for machine in ring.machines if any(record.key == key for record in machine.records)]


@pytest.mark.parametrize("count", [1, 2, 8])
def test_compare_and_set_is_atomic(count: int) -> None:
    ring, ids = built_ring(count)
    key = key_of_name("app", "taxi")
    assert ring.read(ids[-1], key).reason == "missing"
    first = ring.store(ids[0], key, 0, b"one")
    assert (first.ok, first.version) == (True, 1)
    again = ring.store(ids[-1], key, 0, b"other")
    assert (again.ok, again.reason, again.version, again.value) == (False, "conflict", 1, b"one")
    second = ring.store(ids[-1], key, 1, b"two")
    assert (second.ok, second.version) == (True, 2)
    for node in ids:
        read = ring.read(node, key)
        assert (read.ok, read.version, read.value) == (True, 2, b"two")
    ring.world.run_for(2 * SECOND)
    assert sorted(holders(ring, key)) == sorted(by_distance(ring, key)[:5])


def test_a_skipped_replica_gets_its_copy_when_its_link_recovers() -> None:
    """Only the way from the root to one replica is broken, so no leaf set ever changes."""
    ring, _ = built_ring(8)
    key = key_of_name("app", "taxi")
    root, *_, replica = by_distance(ring, key)[:5]
    assert ring.store(root, key, 0, b"one").ok
    ring.world.network.clog(root, replica)
    assert ring.store(root, key, 1, b"two").ok
    ring.world.network.unclog(root, replica)
    ring.world.run_for(2 * SECOND)
    assert [record.value for record in ring.machine(replica).records] == [b"two"]


def test_one_of_many_writers_wins() -> None:
    ring, ids = built_ring(8)
    key = key_of_name("app", "contested")
    for number, node in enumerate(ids, start=1):
        ring.world.inject(node, StoreRecord(number, key, 0, bytes([number])))
    ring.world.run_for(3 * SECOND)
    answers = [ring.answers[node, number] for number, node in enumerate(ids, start=1)]
    winners = [number for number, answer in enumerate(answers, start=1) if answer.ok]
    assert len(winners) == 1
    assert all(answer.value == bytes([winners[0]]) for answer in answers if not answer.ok)


def test_a_record_survives_four_of_its_five_replicas_at_once() -> None:
    ring, ids = built_ring(20, 6)
    key = key_of_name("app", "precious")
    assert ring.store(ids[0], key, 0, b"gold").ok
    ring.world.run_for(SECOND)
    victims = by_distance(ring, key)[:5]
    for node in victims[:4]:
        ring.world.crash(node, silent=True)
    survivor = next(node for node in ids if node not in victims)
    read = ring.read(survivor, key)
    assert (read.ok, read.value) == (True, b"gold")
    ring.world.run_for(5 * SECOND)
    assert len(holders(ring, key)) >= 5, "copied again to full strength"


def test_a_record_survives_every_first_replica_one_by_one() -> None:
    ring, ids = built_ring(12, 8)
    key = key_of_name("app", "wandering")
    assert ring.store(ids[0], key, 0, b"gold").ok
    ledger = RecordLedger()
    ledger.confirm(key, 1, b"gold")
    for _ in range(9):
        ring.world.crash(by_distance(ring, key)[0])
        ring.world.run_for(4 * SECOND)
        assert ledger.violations(ring.machines, ID_BITS, 4) == []
    assert ring.read(ring.members[0], key).value == b"gold"


def test_a_restarted_empty_root_asks_before_it_answers_missing() -> None:
    """At no moment after the root's kill and restart is `missing` answered."""
    ring, ids = built_ring(6)
    key = key_of_name("app", "taxi")
    assert ring.store(ids[0], key, 0, b"gold").ok
    root = by_distance(ring, key)[0]
    asker = next(node for node in ids if node != root)
    ring.world.crash(root)
    ring.start(root, [asker])
    for _ in range(20):
        read = ring.read(asker, key)
        assert (read.ok, read.value) == (True, b"gold")
        ring.world.run_for(SECOND // 10)
    assert root in holders(ring, key)


def test_closer_joiners_take_records_over() -> None:
    ring, ids = built_ring(5, 3)
    keys = [key_of_name("app", str(number)) for number in range(8)]
    ledger = RecordLedger()
    for key in keys:
        assert ring.store(ids[0], key, 0, key.hex.encode()).ok
        ledger.confirm(key, 1, key.hex.encode())
    for node in simulated_ids(50, 20):
        ring.start(node, ids[:2])
        ring.world.run_for(SECOND // 5)
    ring.world.run_for(20 * SECOND)
    assert all_violations(ring) == []
    assert ledger.violations(ring.machines, ID_BITS, 4) == []
    copies = sum(len(machine.records) for machine in ring.machines)
    assert copies <= 8 * 7, "a former replica drops its copy"


def test_leaving_hands_records_over() -> None:
    """All leave but one, each as soon as the one before has gone; nothing is lost."""
    ring, ids = built_ring(7, 5)
    key = key_of_name("app", "taxi")
    assert ring.store(ids[0], key, 0, b"gold").ok
    for node in by_distance(ring, key)[:-1]:
        ring.world.inject(node, LeaveRing())
        assert ring.world.run_until(lambda: len(ring.left) > 0, 3 * SECOND)
        ring.left.clear()
        ring.world.crash(node)
        ring.world.run_for(SECOND // 10)
    (last,) = ring.members
    assert ring.read(last, key).value == b"gold"


def test_a_write_is_applied_once_under_loss_and_duplicates() -> None:
    ring, ids = built_ring(8, 2, NetworkConfig(loss=0.1, duplicate=0.1))
    key = key_of_name("app", "counter")
    for version in range(15):
        answer = ring.store(ids[version % 8], key, version, str(version).encode())
        assert (answer.ok, answer.version) == (True, version + 1)


def test_two_sides_of_a_partition_agree_afterwards() -> None:
    """A root is not a lock: both sides wrote. After the cut all copies are equal again, one of the two."""
    ring, ids = built_ring(10, 4)
    key = key_of_name("app", "split")
    ring.world.network.partition(tuple(ids[:5]))
    ring.world.run_for(10 * SECOND)
    assert ring.store(ids[0], key, 0, b"left").ok
    assert ring.store(ids[9], key, 0, b"right").ok
    ring.world.network.heal()
    assert ring.world.run_until(lambda: not all_violations(ring, 10), 40 * SECOND)
    ring.world.run_for(5 * SECOND)
    values = {record.value for machine in ring.machines for record in machine.records}
    assert len(values) == 1
    assert values <= {b"left", b"right"}


def test_exceeded_limits_are_answered() -> None:
    ring, ids = built_ring(2)
    assert ring.store(ids[0], NodeId(1), 0, b"x" * ((1 << 20) + 1)).reason == "overloaded"
    ring.world.crash(ids[1], silent=True)
    outsider = simulated_ids(77, 1)[0]
    ring.start(outsider, [ids[1]])
    assert ring.read(outsider, NodeId(1)).reason == "timeout"
