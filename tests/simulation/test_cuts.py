"""Effects of a partition of the ring: ended runs stay ended, running ones continue, and afterwards all nodes report the same.

Source: decision 0006, point 9.
"""

import os
from collections.abc import Iterator
from functools import partial
from itertools import combinations

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_node.records.application import application_key
from agiledart_node.wire.commands import ListApplications, Stop
from agiledart_node.wire.effects import Replied
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_simulation.checkers.leaf_sets import leaf_violations
from agiledart_simulation.world.faults import Partition, apply
from tests.simulation.mesh import Mesh, pipeline

SEEDS = int(os.environ.get("AGILEDART_CUT_SEEDS", "1"))
"""Seeds a cut; more by hand: `AGILEDART_CUT_SEEDS=20 pytest tests/simulation/test_cuts.py`."""

CUT_NS = 16 * SECOND


def cuts() -> Iterator[tuple[int, tuple[int, ...]]]:
    """(nodes, the isolated ones) for every way to cut a ring of 3 to 5 nodes in two; node 0 is always on the same side."""
    for count in (3, 4, 5):
        for size in range(1, count):
            for side in combinations(range(1, count), size):
                yield count, side


def _is_quiet(nodes: list[OverlayMachine], leaf_count: int) -> bool:
    """Whether these are one ring."""
    return not leaf_violations(nodes, leaf_count)


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
        """Output of `list` at each node: (state, whether from gossip) by application; nodes that cannot read the ring
        are left out.
        """
        asked = {at: self.mesh.ask(at, ListApplications()) for at in self.names}
        self.mesh.world.run_until(lambda: all(request in self.mesh.answers for request in asked.values()), 90 * SECOND)
        said: dict[str, dict[str, tuple[str, bool]]] = {}
        for at, request in asked.items():
            answer = self.mesh.answers.get(request)
            if not isinstance(answer, Replied):
                continue
            rows = answer.body["applications"]
            said[at] = {row["name"]: (row["state"], row["is_unverified"]) for row in rows}
            for name, (state, is_unverified) in said[at].items():
                if state in ("finished", "failed", "stopped") and not is_unverified:
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
        return all(node.joined for node in nodes) and _is_quiet(nodes, self.mesh.config.overlay.leaf_count)

    def copies(self, name: str) -> dict[bytes, list[NodeId]]:
        """Value of the record → its replicas."""
        held: dict[bytes, list[NodeId]] = {}
        for node in self.mesh.world.live:
            for record in node.machine.overlay.records:
                if record.key == application_key(name):
                    held.setdefault(record.value, []).append(node.peer.node)
        return held


def _check_cut(count: int, side: tuple[int, ...], seed: int, finishes: bool) -> None:
    """Cut, ask, heal, ask again."""
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


@pytest.mark.parametrize("finishes", [False, True], ids=["goes-on", "finishes-meanwhile"])
@pytest.mark.parametrize(("count", "side"), list(cuts()))
def test_a_partition_changes_no_record_and_kills_no_node(count: int, side: tuple[int, ...], finishes: bool) -> None:
    """Every node as bystander, host, guard and root, as the seeds have it."""
    for seed in range(SEEDS):
        _check_cut(count, side, seed, finishes)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(5))
def test_five_hundred_seeds_of_all_cuts(hundred: int) -> None:
    """Each way to cut has twenty seeds of its own, half of them with applications that finish meanwhile."""
    ways = list(cuts())
    for seed in range(100 * hundred, 100 * hundred + 100):
        _check_cut(*ways[seed % len(ways)], seed, finishes=seed // len(ways) % 2 == 1)


@pytest.mark.parametrize("ends", [False, True], ids=["endless", "bounded"])
@pytest.mark.parametrize("same", [True, False], ids=["same-code", "other-code"])
def test_a_name_used_on_both_sides_becomes_one_run_that_names_the_other(ends: bool, same: bool) -> None:
    """The running run is the one in `list`; the other run was stopped, or had ended, and `status` says which."""
    for seed in range(2 * SEEDS):
        mesh = Mesh(seed, 4).build()
        apply(mesh.world, Partition((mesh.node("a3"), mesh.node("a4"))))
        mesh.world.run_for(CUT_NS)
        mesh.submit("a1", pipeline("twice", source_at="a1", sink_at="a2"))
        mesh.submit("a3", pipeline("twice", source_at="a3", sink_at="a4", steps=1 if same else 2))
        runs = {part.number for parts in mesh.running.values() for part in parts}
        assert len(runs) == 2, "each has a number of its own"
        if ends:
            side = ("a1", "a2") if seed % 2 else ("a3", "a4")
            mesh.finish("twice", 1, side)
            mesh.world.run_for(5 * SECOND)
        apply(mesh.world, Partition(()))
        nodes = [node.machine.overlay for node in mesh.world.live]
        assert mesh.world.run_until(partial(_is_quiet, nodes, mesh.config.overlay.leaf_count), 120 * SECOND)
        mesh.world.run_for(25 * SECOND)
        status = mesh.status("a2", "twice")
        lives = {f"{part.number:016x}" for parts in mesh.running.values() for part in parts}
        (rival,) = status["rivals"]
        told = f"seed {seed}: {status['state']}, {rival}, running {lives}"
        assert lives == ({status["run"]} if status["state"] == "running" else set()), told
        assert {status["run"], rival["run"]} == {f"{number:016x}" for number in runs}, told
        states = sorted((status["state"], rival["state"]))
        assert states in ([["finished", "running"], ["finished", "stopped"]] if ends else [["running", "stopped"]]), (
            told
        )
        if rival["state"] == "stopped":
            assert "another run of twice, submitted to a" in rival["reason"], told
