"""Nodes that lie about a run: they know its register, and send to its voters and hosts what suits them."""

from collections.abc import Callable
from typing import Final

import msgspec

from agiledart_kernel.instants import MILLISECOND
from agiledart_kernel.machine import Received
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.wire import messages as wire
from agiledart_recovery.wire.names import Ballot, CheckpointId, Stamp, Voter
from agiledart_recovery.wire.register_value import RegisterValue, RunState
from agiledart_simulation.runs.recovery_faults import RUN
from agiledart_simulation.runs.recovery_run import RecoveryRun
from agiledart_simulation.runs.scenario import draw

OUTSIDER: Final = Peer(NodeId(7 << 90), 1, "liar")

LIES_PER_SECOND: Final = 4


class LyingRun(RecoveryRun):
    """A run among whose nodes one lies, or with a liar that has no part in it.

    Args:
        role: of the liar, `outsider`, `host` (of a part, and no voter), or `voter`.

    Attributes:
        lies: number of lies by kind.
    """

    def __init__(self, seed: int, role: str) -> None:
        super().__init__(draw(seed, name="recovery"))
        self.role, self.lies = role, dict[str, int]()
        self.lying = RandomStream(seed, "lies")

    def _pass(self, span_ns: int) -> None:
        """Let time pass in slices, with lies between them."""
        slice_ns = 1_000 * MILLISECOND // LIES_PER_SECOND
        while span_ns > 0 and not self.ledger.violations:
            self._lie()
            super()._pass(min(slice_ns, span_ns))
            span_ns -= slice_ns

    def _liar(self, value: RegisterValue) -> Peer | None:
        if self.role == "outsider":
            return OUTSIDER
        if self.role == "voter":
            return value.voters[-1].peer
        voters = {voter.peer.node for voter in (*value.voters, *value.old_voters)}
        hosts = [assignment.host for assignment in value.plan.assignments if assignment.host.node not in voters]
        return hosts[0] if hosts else None

    def _lie(self) -> None:
        value = self.ledger.newest
        if value is None or value.state is RunState.FINISHED or (liar := self._liar(value)) is None:
            return
        kind = self.lying.choice(list(KINDS))
        target = self.lying.choice(self.ids)
        if target == liar.node or target not in self.world.nodes:
            return
        self.world.inject(target, Received(liar, KINDS[kind](liar, self._forged(value, liar), self.lying)))
        self.lies[kind] = self.lies.get(kind, 0) + 1

    def _forged(self, value: RegisterValue, liar: Peer) -> RegisterValue:
        """Return the value of the register, changed to the liar's advantage."""
        index = self.lying.index(5)
        attempt = value.attempt + self.lying.index(3)
        own = (Voter(liar, 1),)
        if index == 0:
            return msgspec.structs.replace(value, state=RunState.FINISHED, attempt=attempt)
        if index == 1:
            return msgspec.structs.replace(value, voters=own, old_voters=(), attempt=attempt)
        if index == 2:
            return msgspec.structs.replace(value, voters=(*value.voters[:2], *own), attempt=attempt)
        if index == 3:
            return msgspec.structs.replace(value, committed=CheckpointId(attempt, value.committed.epoch + 5))
        return msgspec.structs.replace(value, attempt=attempt + 1)


def _ballot(liar: Peer, value: RegisterValue) -> Ballot:
    return Ballot(1_000 + value.attempt, liar.node, liar.incarnation)


KINDS: Final[dict[str, Callable[[Peer, RegisterValue, RandomStream], wire.RunMessage]]] = {
    "prepare": lambda liar, value, _: wire.Prepare(RUN, _ballot(liar, value)),
    "accept": lambda liar, value, _: wire.Accept(RUN, Stamp(_ballot(liar, value), 1), value),
    "accepted": lambda liar, value, _: wire.Accepted(RUN, Stamp(_ballot(liar, value), 1), 1),
    "promise": lambda liar, value, _: wire.Promise(RUN, _ballot(liar, value), 1, Stamp(_ballot(liar, value), 1), value),
    "reset": lambda liar, value, _: wire.Reset(RUN, _ballot(liar, value), value),
    "committed": lambda liar, value, _: wire.Committed(RUN, value.attempt, value),
    "start": lambda liar, value, _: wire.Start(RUN, value.attempt),
    "begin": lambda liar, value, random: wire.Begin(
        RUN, value.attempt, value.committed.epoch + random.index(4), bytes(8)
    ),
    "voters": lambda liar, value, _: wire.VotersKnown(RUN, value.attempt, (Voter(liar, 1),)),
    "announced": lambda liar, value, _: wire.LeaderAnnounced(RUN, _ballot(liar, value), is_over=True),
}
"""Lies: messages that only a voter or the coordinator may send."""
