"""What two values of one record say together, after a partition in which each side had a root that took writes.

Each kind of record has an order of its own, by what its values say and never by how often they were written:

| record | what counts |
|---|---|
| an application | `merged_applications` |
| names of applications | all of them |
| a log of a sink | the one that was opened last (`sinks`) |
| a node's name | the later life; of two nodes the one that was written later |
| the uses of a token | all of them (`registering.uses`) |
| an office of a scheduler | the later term (`scheduling.claims`) |

Decision 0006, point 9.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.records.application import CATALOGUE_KEYS, MAX_NAMES, NAMES_CODEC, PEER_CODEC, node_name_key
from agiledart_overlay.records.record_store import Merge


class RecordKind(NamedTuple):
    """One kind of record.

    Args:
        is_at: whether a value of this kind may stand at a key.
        merge: (a value, one of a later version) → what both say: one of the two where it says all.
    """

    codec: Codec[Any]
    is_at: Callable[[Any, NodeId], bool]
    merge: Callable[[Any, Any], Any]


def merge_of(kinds: Sequence[RecordKind]) -> Merge:
    """How the ring merges records of these kinds."""

    def merge(key: NodeId, earlier: bytes, later: bytes) -> bytes | None:
        for kind in kinds:
            merged = _merged(kind, key, earlier, later)
            if merged is not None:
                return merged
        return None

    return merge


def _merged(kind: RecordKind, key: NodeId, earlier: bytes, later: bytes) -> bytes | None:
    """None: neither is a value of this kind. A value that cannot be read gives way to one that can."""
    first, second = _decoded(kind, key, earlier), _decoded(kind, key, later)
    if first is None or second is None:
        return earlier if first is not None else later if second is not None else None
    chosen = kind.merge(first, second)
    return later if chosen is second else earlier if chosen is first else kind.codec.encode(chosen)


def _decoded(kind: RecordKind, key: NodeId, value: bytes) -> Any:
    try:
        decoded = kind.codec.decode(value)
    except RemoteProtocolError:
        return None
    return decoded if kind.is_at(decoded, key) else None


def merged_names(earlier: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    """All names. One that was taken out on one side comes back, and its record says that it is forgotten."""
    both = tuple(sorted({*earlier, *later})[:MAX_NAMES])
    return later if both == later else earlier if both == earlier else both


def merged_peers(earlier: Peer, later: Peer) -> Peer:
    """Of one node the later life; of two nodes of one name the one that was written later."""
    return earlier if earlier.node == later.node and earlier.incarnation > later.incarnation else later


NAMES = RecordKind(NAMES_CODEC, lambda names, key: key in CATALOGUE_KEYS, merged_names)
NODE_NAMES = RecordKind(PEER_CODEC, lambda peer, key: node_name_key(peer.name) == key, merged_peers)
