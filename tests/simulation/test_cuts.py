"""What a cut of the ring changes: what ended stays as it ended, what lives lives on, and afterwards all nodes say the same.

Source: decision 0006, point 9.
"""

import os
from collections.abc import Iterator
from itertools import combinations

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_node.records.application import application_key
from agiledart_node.wire.commands import ListApplications, Stop
from agiledart_node.wire.effects import Replied
from agiledart_simulation.checkers.ring import leaf_violations
from agiledart_simulation.world.faults import Partition, apply
from tests.simulation.mesh import Mesh, pipeline

SEEDS = int(os.environ.get("AGILEDART_CUT_SEEDS", "2"))
"""Seeds a cut; more by hand: `AGILEDART_CUT_SEEDS=20 pytest tests/simulation/test_cuts.py`."""

CUT_NS = 16 * SECOND


def cuts() -> Iterator[tuple[int, tuple[int, ...]]]:
    """(nodes, who is cut off) for every way to cut a ring of 3 to 5 nodes in two; node 0 is always on the same side."""
    for count in (3, 4, 5):
        for size in range(1, count):
            for side in combinations(range(1, count), size):
                yield count, side


class Cut:
    """A ring in which three applications run: one on one node, one on two, one that has finished; then it is cut."""

    def __init__(self, count: int, side: tuple[int, ...], seed: int) -> None:
        self.mesh = Mesh(seed, count).build()
        self.names = [f"a{number + 1}" for number in range(count)]
        self.side = [self.names[number] for number in side]
        random = RandomStream(seed, "roles")
        self.hosts: dict[str, list[str]] = {}
        for name, at in (("alone", 1), ("paired", 2), ("over", 2)):
            nodes = list(self.names)
            random.shuffle(nodes)
            self.mesh.submit(nodes[0], pipeline(name, source_at=nodes[0], sink_at=nodes[at - 1]))
            self.hosts[name] = self.mesh.hosts(name)
        self.mesh.finish("over", 1)
        assert self.mesh.world.run_until(lambda: not self.mesh.hosts("over"), 20 * SECOND)
        self.finals: dict[str, dict[str, None]] = {}

    def is_whole(self, name: str) -> bool:
        """Whether all hosts of an application are on one side."""
        return len({host in self.side for host in self.hosts[name]}) == 1

    def cut(self) -> None:
        """Two sides, long enough for each to be a ring of its own."""
        apply(self.mesh.world, Partition(tuple(self.mesh.node(name) for name in self.side)))
        self.mesh.world.run_for(CUT_NS)

    def ask_all(self) -> dict[str, dict[str, tuple[str, bool]]]:
        """What `list` says at each node: (state, whether by hearsay) by application; who cannot read the ring is left out."""
        asked = {at: self.mesh.ask(at, ListApplications()) for at in self.names}
        self.mesh.world.run_until(lambda: all(request in self.mesh.answers for request in asked.values()), 90 * SECOND)
        said: dict[str, dict[str, tuple[str, bool]]] = {}
        for at, request in asked.items():
            answer = self.mesh.answers.get(request)
            if not isinstance(answer, Replied):
                continue
            rows = answer.body["applications"]
            said[at] = {row["name"]: (row["state"], row["by_hearsay"]) for row in rows}
            for name, (state, by_hearsay) in said[at].items():
                if state in ("finished", "failed", "stopped") and not by_hearsay:
                    self.finals.setdefault(name, {})[state] = None
        return said

    def heal(self) -> None:
        """One ring again, and all copies of records the same."""
        world = self.mesh.world
        apply(world, Partition(()))
        assert world.run_until(self._is_one, 120 * SECOND), "the rings did not become one"
        world.run_for(25 * SECOND)  # two patrols

    def _is_one(self) -> bool:
        nodes = [node.machine.overlay for node in self.mesh.world.live]
        return all(node.joined for node in nodes) and not leaf_violations(nodes, self.mesh.config.overlay.leaf_count)

    def copies(self, name: str) -> dict[bytes, list[NodeId]]:
        """Value of the record → who holds it."""
        held: dict[bytes, list[NodeId]] = {}
        for node in self.mesh.world.live:
            for record in node.machine.overlay.records:
                if record.key == application_key(name):
                    held.setdefault(record.value, []).append(node.peer.node)
        return held


@pytest.mark.parametrize("finishes", [False, True], ids=["goes-on", "finishes-meanwhile"])
@pytest.mark.parametrize(("count", "side"), list(cuts()))
def test_a_cut_rewrites_nothing_and_kills_nothing(count: int, side: tuple[int, ...], finishes: bool) -> None:
    """Every node as bystander, host, guard and root, as the seeds have it."""
    for seed in range(SEEDS):
        cut = Cut(count, side, seed)
        cut.cut()
        cut.ask_all()
        whole = [name for name in ("alone", "paired") if cut.is_whole(name)]
        if finishes:
            for name in whole:
                cut.mesh.finish(name, 1)
            cut.mesh.world.run_for(5 * SECOND)
        cut.ask_all()
        cut.heal()
        after = cut.ask_all()
        told = f"{count} nodes, {cut.side} cut off, seed {seed}, hosts {cut.hosts}: {after}"
        assert len(after) == count, told
        for name in ("alone", "paired", "over"):
            states = {said.get(name) for said in after.values()}
            assert len(states) == 1, f"{name}: {told}"
            state = states.pop()
            assert state is not None, f"{name}: {told}"
            assert not state[1], f"{name}: {told}"
            ended = cut.finals.get(name, {})
            assert len(ended) <= 1, f"{name} ended as {list(ended)}: {told}"
            if name == "over" or (finishes and name in whole):
                assert state == ("finished", False), f"{name}: {told}"
            elif name in whole:
                assert state == ("running", False), f"{name}: {told}"
                assert cut.mesh.hosts(name) == cut.hosts[name], f"{name}: {told}"
            else:
                assert state == ("failed", False), f"{name}: {told}"
            assert len(cut.copies(name)) == 1, f"{name}: {told}"
        for name in whole if not finishes else ():
            at = cut.names[seed % count]
            cut.mesh.answer(cut.mesh.ask(at, Stop(name, now=True)))
            assert {said[name] for said in cut.ask_all().values()} == {("stopped", False)}
