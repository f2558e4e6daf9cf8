"""A holder's side: which fragments lie here, whether one more is taken, and which may go.

Nothing of life ℓ is taken once this node knows of ℓ + 1 (V5). Nothing that the last two committed epochs need is let go (V6): what
goes is told by the register's value, or by the host that had it put here, never by an age. So a fragment of an epoch that is not
committed yet stays, whatever it is.
"""

from collections.abc import Mapping

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.limits import MAX_CHAIN, MAX_FRAGMENTS, MAX_HELD
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.messages import Kept
from agiledart_recovery.wire.names import Party, Run, Snapshot
from agiledart_recovery.wire.value import Element, Value

_NOBODY = NodeId(0)


class Shelf:
    """Fragments of others on this node's disk."""

    def __init__(self) -> None:
        self._held: dict[FragmentKey, NodeId] = {}
        self._lives: dict[Run, int] = {}

    def knows_life(self, run: Run, life: int) -> None:
        """A life of a run was heard of from its register."""
        self._lives[run] = max(self._lives.get(run, 0), life)

    def refusal(self, key: FragmentKey, life: int) -> str:
        """Why a fragment is not taken; empty: it is. `life`: in which the host is that wants it to be."""
        if life < self._lives.get(key.run, 0):
            return f"life {life} is over, {self._lives[key.run]} counts"
        if len(self._held) >= MAX_HELD and key not in self._held:
            return f"{MAX_HELD} fragments are held"
        return ""

    def put(self, key: FragmentKey, owner: NodeId = _NOBODY) -> None:
        """It is on the disk; `owner` is the host that had it put here."""
        self._held[key] = owner

    def has(self, key: FragmentKey) -> bool:
        """Whether it lies here."""
        return key in self._held

    def release(self, value: Value) -> tuple[FragmentKey, ...]:
        """Take out what the register says is needed by nobody, and return it."""
        needed: Mapping[tuple[Party, Snapshot], Element] = value.needed
        self.knows_life(value.run, value.life)
        gone = tuple(
            key
            for key in self._held
            if key.run == value.run
            and (key.party, key.snapshot) not in needed
            and (key.snapshot.life < value.life or key.snapshot.epoch <= value.committed.epoch)
        )
        for key in gone:
            del self._held[key]
        return gone

    def keep(self, owner: NodeId, message: Kept) -> tuple[FragmentKey, ...]:
        """A host says what of a party is still needed: take out the rest of what came from it, or from hosts of older lives."""
        mine = {key: whose for key, whose in self._held.items() if (key.run, key.party) == (message.run, message.party)}
        if owner not in mine.values():
            return ()  # a stranger
        self.knows_life(message.run, message.life)
        gone = tuple(
            key
            for key in mine
            if message.is_over
            or (
                key.snapshot not in message.needed
                and (key.snapshot.life < message.life or key.snapshot.epoch <= message.committed.epoch)
            )
        )
        for key in gone:
            del self._held[key]
        return gone

    def held_for(self, run: Run, party: Party) -> tuple[tuple[Snapshot, int], ...]:
        """Fragments of a party that lie here, those of the newest snapshots first."""
        found = [(key.snapshot, key.index) for key in self._held if (key.run, key.party) == (run, party)]
        return tuple(sorted(found, reverse=True)[: 2 * MAX_CHAIN * MAX_FRAGMENTS])

    def damaged(self, key: FragmentKey) -> NodeId:
        """A fragment is not whole any more; returns the host that had it put here (0: nobody knows)."""
        return self._held.pop(key, _NOBODY)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs of which something lies here."""
        return tuple(dict.fromkeys(key.run for key in self._held))

    def drop_run(self, run: Run) -> tuple[FragmentKey, ...]:
        """Take out all of a run that has ended."""
        gone = tuple(key for key in self._held if key.run == run)
        for key in gone:
            del self._held[key]
        return gone

    def violations(self) -> list[str]:
        """What must never be so."""
        return ["more fragments than the limit"] if len(self._held) > MAX_HELD else []
