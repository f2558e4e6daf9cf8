"""Snapshots of the model job: full ones, and deltas to the committed snapshot that they build on.

A delta is what lies between the common beginning and the common end of two encoded states. Each names the state that it builds
on, so a delta that is put on another state, in another order or with a link left out, is detected and not used.
"""

from dataclasses import dataclass
from hashlib import sha256

import msgspec

from agiledart_recovery.wire.names import CheckpointId, InstanceId

MAX_LINKS = 5
"""Fewer than the real one has, so that short runs begin new chains, too."""


class WrongChain(Exception):
    """A snapshot builds on another state than the one at hand."""


class _SnapshotDelta(msgspec.Struct, frozen=True, array_like=True):
    """Delta: digest of the base state (empty: a full one), the lengths of the common beginning and end, the bytes between."""

    onto: bytes
    head: int
    tail: int
    between: bytes


_DELTA: msgspec.msgpack.Decoder[_SnapshotDelta] = msgspec.msgpack.Decoder(_SnapshotDelta)


def built(before: bytes, raw: bytes) -> bytes:
    """Return the state of a snapshot that builds on `before`. Raises WrongChain."""
    delta = _DELTA.decode(raw)
    if delta.onto and sha256(before).digest() != delta.onto:
        raise WrongChain("a snapshot builds on another state")
    if not delta.onto:
        return delta.between
    return before[: delta.head] + delta.between + before[len(before) - delta.tail :]


def whole(state: bytes) -> bytes:
    """Return a full snapshot."""
    return msgspec.msgpack.encode(_SnapshotDelta(b"", 0, 0, state))


@dataclass
class _BaseSnapshot:
    digest: bytes
    links: int
    state: bytes


class SnapshotChains:
    """Snapshots that one process has saved of its instances."""

    def __init__(self) -> None:
        self._bases: dict[InstanceId, _BaseSnapshot] = {}
        self._open: dict[tuple[InstanceId, CheckpointId], _BaseSnapshot] = {}

    def saved(
        self, instance: InstanceId, checkpoint: CheckpointId, state: bytes, *, is_last: bool = False
    ) -> tuple[bytes, bytes]:
        """Return (the snapshot of a barrier, digest of the one that it builds on or nothing). `is_last`: it is handed over."""
        base = self._bases.get(instance)
        if base is None or (base.links >= MAX_LINKS and not is_last):
            raw, onto, links = whole(state), b"", 1
        else:
            head = _common(base.state, state)
            most = min(len(base.state), len(state)) - head
            tail = min(most, _common(base.state[::-1], state[::-1]))
            between = state[head : len(state) - tail]
            raw = msgspec.msgpack.encode(_SnapshotDelta(sha256(base.state).digest(), head, tail, between))
            onto, links = base.digest, base.links + 1
        self._open[instance, checkpoint] = _BaseSnapshot(sha256(raw).digest(), links, state)
        return raw, onto

    def committed(self, instance: InstanceId, checkpoint: CheckpointId) -> None:
        """Note that the snapshot is committed: the next ones build on it."""
        base = self._open.get((instance, checkpoint))
        if base is not None:
            self._bases[instance] = base
            self._open = {
                (owner, at): snapshot
                for (owner, at), snapshot in self._open.items()
                if owner != instance or at > checkpoint
            }


def _common(one: bytes, other: bytes) -> int:
    """Return the number of bytes that two strings have in common at their beginning."""
    most = min(len(one), len(other))
    return next((number for number in range(most) if one[number] != other[number]), most)
