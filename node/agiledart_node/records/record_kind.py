"""Merge of two values of one record after a partition in which each side had a root that accepted writes.

Each kind of record has an order of its own, by the content of its values and never by the number of writes:

| record | result |
|---|---|
| an application | `merged_applications` |
| names of applications | all of them |
| a sink's log | the one opened last (`sinks`) |
| a node's name | the later incarnation; of two nodes the one written later |
| the uses of a token | all of them (`registering.token_uses`) |
| a scheduler slot | the later term (`scheduling.claims`) |

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
        is_at: whether a value of this kind may be stored at a key.
        merge: (a value, one of a later version) → the merged value: one of the two where it contains the other.
    """

    codec: Codec[Any]
    is_at: Callable[[Any, NodeId], bool]
    merge: Callable[[Any, Any], Any]


def merge_of(kinds: Sequence[RecordKind]) -> Merge:
    """Return the ring's merge function for records of these kinds."""

    def merge(key: NodeId, earlier: bytes, later: bytes) -> bytes | None:
        for kind in kinds:
            merged = _merged(kind, key, earlier, later)
            if merged is not None:
                return merged
        return None

    return merge


def _merged(kind: RecordKind, key: NodeId, earlier: bytes, later: bytes) -> bytes | None:
    """Merge two values of this kind; None: neither is of this kind. A readable value replaces an unreadable one."""
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
    """Return all names. A name removed on one side returns, and its record says that it is forgotten."""
    both = tuple(sorted({*earlier, *later})[:MAX_NAMES])
    return later if both == later else earlier if both == earlier else both


def merged_peers(earlier: Peer, later: Peer) -> Peer:
    """Return the later incarnation of one node, or of two nodes of one name the one written later."""
    return earlier if earlier.node == later.node and earlier.incarnation > later.incarnation else later


NAMES = RecordKind(NAMES_CODEC, lambda names, key: key in CATALOGUE_KEYS, merged_names)
NODE_NAMES = RecordKind(PEER_CODEC, lambda peer, key: node_name_key(peer.name) == key, merged_peers)
