"""Elements of the model job: whole ones, and ones that say only what differs from the committed element that they rest on.

What differs is what lies between the common beginning and the common end of two encoded states. Each names the state that it is
taken from, so one that is put on another one, in another order or with a link left out, is seen and not read.
"""

from dataclasses import dataclass
from hashlib import sha256

import msgspec

from agiledart_recovery.wire.names import CheckpointId, InstanceId

MAX_LINKS = 5
"""Fewer than the real one has, so that short runs begin chains anew, too."""


class WrongChain(Exception):
    """An element rests on another state than the one at hand."""


class _SnapshotDelta(msgspec.Struct, frozen=True, array_like=True):
    """`onto`: digest of the state before, empty for a whole one; how much of its beginning and end stays; what stands between."""

    onto: bytes
    head: int
    tail: int
    between: bytes


_DELTA: msgspec.msgpack.Decoder[_SnapshotDelta] = msgspec.msgpack.Decoder(_SnapshotDelta)


def built(before: bytes, raw: bytes) -> bytes:
    """The state that an element says, with the state before it. Raises WrongChain."""
    told = _DELTA.decode(raw)
    if told.onto and sha256(before).digest() != told.onto:
        raise WrongChain("an element rests on another state")
    if not told.onto:
        return told.between
    return before[: told.head] + told.between + before[len(before) - told.tail :]


def whole(state: bytes) -> bytes:
    """An element that rests on nothing."""
    return msgspec.msgpack.encode(_SnapshotDelta(b"", 0, 0, state))


@dataclass
class _BaseSnapshot:
    digest: bytes
    links: int
    state: bytes


class SnapshotChains:
    """What one process knows of the elements that its parties have saved."""

    def __init__(self) -> None:
        self._bases: dict[InstanceId, _BaseSnapshot] = {}
        self._open: dict[tuple[InstanceId, CheckpointId], _BaseSnapshot] = {}

    def saved(
        self, instance: InstanceId, checkpoint: CheckpointId, state: bytes, *, is_last: bool = False
    ) -> tuple[bytes, bytes]:
        """(the element of a barrier, digest of the element that it rests on or nothing). `is_last`: it is handed over."""
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
        """The element is committed: the next ones rest on it."""
        base = self._open.get((instance, checkpoint))
        if base is not None:
            self._bases[instance] = base
            self._open = {
                (whose, at): one for (whose, at), one in self._open.items() if whose != instance or at > checkpoint
            }


def _common(one: bytes, other: bytes) -> int:
    """How many bytes they have in common at their beginning."""
    most = min(len(one), len(other))
    return next((number for number in range(most) if one[number] != other[number]), most)
