"""Where sink logs are, by the ring: noted by one node, found by all, also after it came back elsewhere."""

from typing import Any

import msgspec

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.records.sink_directory import FindSink, RegisterSink, SinkFound, SinkRecord
from agiledart_overlay.wire.events import JoinRing
from tests.simulation.mesh import Mesh


class SinkMesh(Mesh):
    """A mesh that keeps `SinkFound`."""

    def __init__(self, seed: int, count: int, **more: Any) -> None:
        self.found: dict[int, SinkFound] = {}
        super().__init__(seed, count, **more)

    def _on_effect(self, peer: Peer, effect: Effect) -> None:
        if isinstance(effect, SinkFound):
            assert effect.request not in self.found, "two answers to one request"
            self.found[effect.request] = effect
        super()._on_effect(peer, effect)

    def note(self, name: str, **changes: Any) -> SinkRecord:
        machine = self.machine(name)
        record = SinkRecord("routes", "taxi", 1, machine.me, 1_000, "ab" * 8, b"{}", 4)
        record = msgspec.structs.replace(record, **changes)
        self.world.inject(machine.me.node, RegisterSink(record))
        return record

    def find(self, name: str, sink: str = "routes") -> SinkFound:
        number = len(self.found) + 1
        self.world.inject(self.node(name), FindSink(number, sink))
        assert self.world.run_until(lambda: number in self.found, 60 * SECOND), "no answer"
        return self.found[number]


def restarted(mesh: SinkMesh, node: NodeId, address: str) -> None:
    """The node again, in its next incarnation and elsewhere."""

    known = mesh.world.nodes[node].peer
    peer = msgspec.structs.replace(known, incarnation=known.incarnation + 1, address=address)
    mesh.world.start(peer)
    seeds = tuple(other.peer for other in mesh.world.live if other.peer.node != node)
    mesh.world.inject(node, JoinRing(seeds[:2]))
    assert mesh.world.run_until(lambda: mesh.machine(mesh.names[node]).joined, 60 * SECOND)


def test_a_log_recorded_by_one_node_is_found_by_all() -> None:
    mesh = SinkMesh(5, 6).build()
    assert mesh.find("a1").record is None
    record = mesh.note("a3")
    mesh.note("a3")  # once more while the first is under way
    mesh.world.run_for(2 * SECOND)
    assert [mesh.find(name).record for name in mesh.names.values()] == [record] * 6
    assert mesh.find("a1", "others") == SinkFound(len(mesh.found), None, "")


def test_the_last_opened_log_counts() -> None:
    mesh = SinkMesh(6, 5).build()
    newer = mesh.note("a2", opened_ms=2_000)
    mesh.world.run_for(2 * SECOND)
    mesh.note("a4", opened_ms=1_000)
    mesh.world.run_for(2 * SECOND)
    assert mesh.find("a1").record == newer
    newest = mesh.note("a4", opened_ms=3_000)
    mesh.world.run_for(2 * SECOND)
    mesh.note("a2", opened_ms=2_000)  # the older node reminds the ring, in vain
    mesh.world.run_for(2 * SECOND)
    assert mesh.find("a5").record == newest


def test_a_node_that_returned_elsewhere_is_found_before_and_after_its_report() -> None:
    mesh = SinkMesh(7, 5).build()
    mesh.note("a3")
    mesh.world.run_for(2 * SECOND)
    node = mesh.node("a3")
    mesh.world.crash(node)
    mesh.world.run_for(10 * SECOND)
    gone = mesh.find("a1").record
    assert gone is not None
    assert gone.node.incarnation == 1
    restarted(mesh, node, "10.0.0.9:9")
    mesh.world.run_for(5 * SECOND)
    for noted in (False, True):
        if noted:
            mesh.note("a3")
            mesh.world.run_for(2 * SECOND)
        back = mesh.find("a1").record
        assert back is not None
        assert (back.node.node, back.node.incarnation, back.node.address) == (node, 2, "10.0.0.9:9")
