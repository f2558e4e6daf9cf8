"""Store of fragments on a replica node: which ones lie here, whether one more is accepted, and which may be deleted.

A fragment of attempt ℓ is refused once this node knows of ℓ + 1 (V5). A fragment that the last two committed epochs need is
never deleted (V6). The register's value, or the host that had it stored here, says what may be deleted; age does not count. So
every fragment of an epoch that is not committed yet stays.
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
    """Fragments of other hosts on this node's disk."""

    def __init__(self) -> None:
        self._held: dict[FragmentKey, NodeId] = {}
        self._attempts: dict[RunId, int] = {}

    def observe_attempt(self, run: RunId, attempt: int) -> None:
        """Note an attempt of a run that its register names."""
        self._attempts[run] = max(self._attempts.get(run, 0), attempt)

    def refusal(self, key: FragmentKey, attempt: int) -> str:
        """Return why a fragment is refused; empty: it is accepted. `attempt`: the attempt of the host that sends it."""
        if attempt < self._attempts.get(key.run, 0):
            return f"attempt {attempt} is over, the current one is {self._attempts[key.run]}"
        if len(self._held) >= MAX_HELD_FRAGMENTS and key not in self._held:
            return f"{MAX_HELD_FRAGMENTS} fragments are stored already"
        return ""

    def put(self, key: FragmentKey, owner: NodeId = _NO_NODE) -> None:
        """Note that a fragment is on the disk; `owner` is the host that had it stored here."""
        self._held[key] = owner

    def has(self, key: FragmentKey) -> bool:
        """Return whether a fragment lies here."""
        return key in self._held

    def release(self, value: RegisterValue) -> tuple[FragmentKey, ...]:
        """Remove the fragments that the register's value does not need, and return them."""
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
        """Remove an instance's fragments that a host does not need, if they came from it or from hosts of older attempts."""
        mine = {
            key: owner_node
            for key, owner_node in self._held.items()
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
        """Return the fragments of an instance that lie here, those of the newest snapshots first."""
        held = [(key.checkpoint, key.index) for key in self._held if (key.run, key.instance) == (run, instance)]
        return tuple(sorted(held, reverse=True)[: 2 * MAX_CHAIN * MAX_FRAGMENTS])

    def damaged(self, key: FragmentKey) -> NodeId:
        """Remove a damaged fragment, and return the host that had it stored here (0: unknown)."""
        return self._held.pop(key, _NO_NODE)

    @property
    def runs(self) -> tuple[RunId, ...]:
        """Return the runs of which fragments lie here."""
        return tuple(dict.fromkeys(key.run for key in self._held))

    def drop_run(self, run: RunId) -> tuple[FragmentKey, ...]:
        """Remove all fragments of a run that has ended."""
        gone = tuple(key for key in self._held if key.run == run)
        for key in gone:
            del self._held[key]
        return gone

    def violations(self) -> list[str]:
        """Return violated invariants, for checkers."""
        return ["more fragments than the limit"] if len(self._held) > MAX_HELD_FRAGMENTS else []
