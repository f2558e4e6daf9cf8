"""A holder's side: which fragments lie here, whether one more is taken, and which may go.

Nothing of life ℓ is taken once this node knows of ℓ + 1 (V5). Nothing that the last two committed epochs need is let go (V6): what
goes is told by the register's value, or by the host that had it put here, never by an age. So a fragment of an epoch that is not
committed yet stays, whatever it is.
"""

from collections.abc import Mapping

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.limits import MAX_CHAIN, MAX_FRAGMENTS, MAX_HELD_FRAGMENTS
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.messages import NeededFragments
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot, RegisterValue

_NO_NODE = NodeId(0)


class FragmentStore:
    """Fragments of others on this node's disk."""

    def __init__(self) -> None:
        self._held: dict[FragmentKey, NodeId] = {}
        self._attempts: dict[RunId, int] = {}

    def observe_attempt(self, run: RunId, attempt: int) -> None:
        """A life of a run was heard of from its register."""
        self._attempts[run] = max(self._attempts.get(run, 0), attempt)

    def refusal(self, key: FragmentKey, attempt: int) -> str:
        """Why a fragment is not taken; empty: it is. `life`: in which the host is that wants it to be."""
        if attempt < self._attempts.get(key.run, 0):
            return f"life {attempt} is over, {self._attempts[key.run]} counts"
        if len(self._held) >= MAX_HELD_FRAGMENTS and key not in self._held:
            return f"{MAX_HELD_FRAGMENTS} fragments are held"
        return ""

    def put(self, key: FragmentKey, owner: NodeId = _NO_NODE) -> None:
        """It is on the disk; `owner` is the host that had it put here."""
        self._held[key] = owner

    def has(self, key: FragmentKey) -> bool:
        """Whether it lies here."""
        return key in self._held

    def release(self, value: RegisterValue) -> tuple[FragmentKey, ...]:
        """Take out what the register says is needed by nobody, and return it."""
        needed: Mapping[tuple[InstanceId, CheckpointId], InstanceSnapshot] = value.needed
        self.observe_attempt(value.run, value.attempt)
        gone = tuple(
            key
            for key in self._held
            if key.run == value.run
            and (key.instance, key.checkpoint) not in needed
            and (key.checkpoint.attempt < value.attempt or key.checkpoint.epoch <= value.committed.epoch)
        )
        for key in gone:
            del self._held[key]
        return gone

    def keep(self, owner: NodeId, message: NeededFragments) -> tuple[FragmentKey, ...]:
        """A host says what of a party is still needed: take out the rest of what came from it, or from hosts of older lives."""
        mine = {
            key: whose
            for key, whose in self._held.items()
            if (key.run, key.instance) == (message.run, message.instance)
        }
        if owner not in mine.values():
            return ()  # a stranger
        self.observe_attempt(message.run, message.attempt)
        gone = tuple(
            key
            for key in mine
            if message.is_over
            or (
                key.checkpoint not in message.needed
                and (key.checkpoint.attempt < message.attempt or key.checkpoint.epoch <= message.committed.epoch)
            )
        )
        for key in gone:
            del self._held[key]
        return gone

    def held_for(self, run: RunId, instance: InstanceId) -> tuple[tuple[CheckpointId, int], ...]:
        """Fragments of a party that lie here, those of the newest snapshots first."""
        found = [(key.checkpoint, key.index) for key in self._held if (key.run, key.instance) == (run, instance)]
        return tuple(sorted(found, reverse=True)[: 2 * MAX_CHAIN * MAX_FRAGMENTS])

    def damaged(self, key: FragmentKey) -> NodeId:
        """A fragment is not whole any more; returns the host that had it put here (0: nobody knows)."""
        return self._held.pop(key, _NO_NODE)

    @property
    def runs(self) -> tuple[RunId, ...]:
        """Runs of which something lies here."""
        return tuple(dict.fromkeys(key.run for key in self._held))

    def drop_run(self, run: RunId) -> tuple[FragmentKey, ...]:
        """Take out all of a run that has ended."""
        gone = tuple(key for key in self._held if key.run == run)
        for key in gone:
            del self._held[key]
        return gone

    def violations(self) -> list[str]:
        """What must never be so."""
        return ["more fragments than the limit"] if len(self._held) > MAX_HELD_FRAGMENTS else []
