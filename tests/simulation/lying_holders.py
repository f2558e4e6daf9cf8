"""A node that holds fragments of a run's state and lies: it alters them, forgets them, and says what is not so about others."""

from collections.abc import Callable, Iterator
from typing import Final

from agiledart_kernel.machine import Received
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import InstanceSnapshot, RegisterValue, ReplacedFragment
from agiledart_simulation.runs.recovery_faults import RUN
from tests.simulation.lying_nodes import LyingRun


class LyingHolderRun(LyingRun):
    """A run with a lying holder of fragments, which neither hosts nor votes where such a holder exists.

    Attributes:
        liar: the holder, once the register names one.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "holder")
        self.liar: Peer | None = None

    def _lie(self) -> None:
        value = self.ledger.newest
        if value is None or (liar := self._holder(value)) is None:
            return
        kind = self.lying.choice(list(LIES))
        if LIES[kind](self, value, liar):
            self.lies[kind] = self.lies.get(kind, 0) + 1

    def _holder(self, value: RegisterValue) -> Peer | None:
        """Return the liar; choose it among the holders at the first call."""
        if self.liar is None:
            holders = [node for _, snapshot in snapshots_of(value) for node in snapshot.replica_nodes if node]
            busy = {voter.peer.node for voter in value.voters} | set(value.plan.hosts)
            idle = [node for node in holders if node not in busy] or holders
            if idle:
                self.liar = self.world.nodes[idle[0]].peer
        return self.liar

    def say(self, to: NodeId, liar: Peer, message: wire.RunMessage) -> bool:
        """Let the liar send a message to a running node."""
        if to == liar.node or to not in self.world.nodes or not self.world.nodes[to].is_up:
            return False
        self.world.inject(to, Received(liar, message))
        return True


def snapshots_of(value: RegisterValue) -> Iterator[tuple[InstanceId, InstanceSnapshot]]:
    """Return the snapshots that a value names, with their instances."""
    return ((saved.instance, snapshot) for saved in value.saved for snapshot in saved.chain)


def _alters(run: LyingHolderRun, _: RegisterValue, liar: Peer) -> bool:
    fragments = run.disks[liar.node].fragments
    fragments.update(dict.fromkeys(fragments, b"altered"))
    return bool(fragments)


def _forgets(run: LyingHolderRun, _: RegisterValue, liar: Peer) -> bool:
    """Delete a fragment, and go on to say that it is there."""
    fragments = run.disks[liar.node].fragments
    return bool(fragments) and fragments.pop(run.lying.choice(sorted(fragments))) is not None


def _claims_all(run: LyingHolderRun, value: RegisterValue, liar: Peer) -> bool:
    for instance, snapshot in snapshots_of(value):
        held = tuple((snapshot.checkpoint, index) for index, _ in enumerate(snapshot.replica_nodes))
        for host in value.plan.hosts:
            run.say(host, liar, wire.HeldFragments(RUN, instance, held))
    return bool(value.saved)


def _denies_all(run: LyingHolderRun, value: RegisterValue, liar: Peer) -> bool:
    said = [
        run.say(host, liar, wire.HeldFragments(RUN, instance, ()))
        for instance, _ in snapshots_of(value)
        for host in value.plan.hosts
    ]
    return any(said)


def _ends_for_others(run: LyingHolderRun, value: RegisterValue, liar: Peer) -> bool:
    """Say to other holders that the state is not needed any more."""
    said = [
        run.say(node, liar, wire.NeededFragments(RUN, value.attempt, instance, value.committed, (), is_over=True))
        for instance, snapshot in snapshots_of(value)
        for node in snapshot.replica_nodes
        if node
    ]
    return any(said)


def _takes_all(run: LyingHolderRun, value: RegisterValue, liar: Peer) -> bool:
    """Say to the voters that it holds each fragment now."""
    made = tuple(
        ReplacedFragment(instance, snapshot.checkpoint, index, liar.node)
        for instance, snapshot in snapshots_of(value)
        for index, _ in enumerate(snapshot.replica_nodes)
    )[:8]
    message = wire.FragmentsReplaced(RUN, value.attempt, made)
    said = [run.say(voter.peer.node, liar, message) for voter in value.voters]
    return any(said)


LIES: Final[dict[str, Callable[[LyingHolderRun, RegisterValue, Peer], bool]]] = {
    "alters": _alters,
    "forgets": _forgets,
    "claims all": _claims_all,
    "denies all": _denies_all,
    "ends for others": _ends_for_others,
    "takes all": _takes_all,
}
"""Lies of a holder; each returns whether there was anything to lie about."""
