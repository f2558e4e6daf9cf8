"""Several nodes on one machine: copies of a record go to different machines, so one machine that dies takes one copy at most."""

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.tables.virtual_nodes import virtual_nodes
from agiledart_simulation.checkers.record_ledger import RecordLedger
from agiledart_simulation.world.overlay_ring import OverlayRing

HOSTS = 6
CORES = 8


def test_copies_of_a_record_are_on_distinct_machines() -> None:
    ring = OverlayRing(3)
    random = RandomStream(3, "keys")
    first: NodeId | None = None
    for host in range(HOSTS):
        public_key = random.bits(256).to_bytes(32, "big")
        for index in range(virtual_nodes(CORES)):
            node = node_id_of_key(public_key, index)
            first = first or node
            ring.start(node, [] if node == first else [first], peer=Peer(node, 1, host=f"host{host}"))
            ring.world.run_for(SECOND)
    assert first is not None
    assert len(ring.members) == HOSTS * 3
    ledger = RecordLedger()
    keys = [NodeId(random.bits(128)) for _ in range(6)]
    for key in keys:
        answer = ring.store(first, key, 0, b"value")
        assert answer.ok
        ledger.confirm(key, 1, b"value")
    ring.world.run_for(2 * SECOND)
    for key in keys:
        hosts = sorted(
            machine.me.host for machine in ring.machines if any(record.key == key for record in machine.records)
        )
        assert len(dict.fromkeys(hosts)) >= 1 + ring.config.replicas, hosts
    assert ledger.violations(ring.machines, 128, ring.config.replicas) == []
    for peer in [machine.me for machine in ring.machines if machine.me.host == "host2"]:
        ring.world.crash(peer.node, silent=True)
    ring.world.run_for(30 * SECOND)
    assert ledger.violations(ring.machines, 128, ring.config.replicas) == []
