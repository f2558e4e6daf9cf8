"""What a node asks of its driver about checkpoints: files of one checkpoint each, and the elements that they are made of.

Each is answered by `Completed` or `Failed`. Bytes are the driver's business, as with fragments.
"""

import msgspec

from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.checkpoint_messages import CheckpointInfo
from agiledart_recovery.wire.names import RunId


class SnapshotLocation(msgspec.Struct, frozen=True, array_like=True):
    """An element on the disk of the node that saved it.

    Args:
        stage, term, index: of the instance; `role`: source, stage or sink.
        most: it has no more bytes.
    """

    host: Peer
    stage: int
    generation: int
    index: int
    role: str
    digest: bytes
    most: int


class GatherCheckpoint(Effect, frozen=True, gc=False):
    """Make one file of these elements. `Completed.result`: the `CheckpointInfo`, with hash and size.

    Args:
        about: what is known of it before; without a name it is a passing one, which goes by itself.
        specification, plan: of the topology, in their wire forms.
        elements: in the order of chains, oldest first.
    """

    request: int
    about: CheckpointInfo
    specification: bytes
    plan: bytes
    snapshots: tuple[SnapshotLocation, ...]


class FetchCheckpoint(Effect, frozen=True, gc=False):
    """Fetch the file of a checkpoint from a node, and keep it; a passing one when it has no name, or `passes`."""

    request: int
    replica_node: Peer
    checkpoint: CheckpointInfo
    is_temporary: bool = False


class ReadCheckpoints(Effect, frozen=True, gc=False):
    """Which are kept here? `Completed.result`: tuple of `CheckpointInfo`."""

    request: int


class DropCheckpoint(Effect, frozen=True, gc=False):
    """Keep the one of this name no longer, if it has this hash and is of this run."""

    request: int
    name: str
    digest: bytes
    run: RunId


class AllowCheckpointFetch(Effect, frozen=True, gc=False):
    """A node may fetch the kept one with this hash, for a while: it is to keep a copy, or has brought the order of who may."""

    digest: bytes
    node: NodeId


class FetchSnapshot(Effect, frozen=True, gc=False):
    """Fetch an element out of a checkpoint that lies on a node, and put it where a run looks for its own."""

    request: int
    replica_node: Peer
    run: RunId
    digest: bytes
    most: int
