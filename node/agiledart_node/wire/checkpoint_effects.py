"""Effects by which a node asks its driver about checkpoints: checkpoint files, and the task snapshots that they consist of.

Each effect with a `request` is answered by `Completed` or `Failed`. Bytes stay with the driver, as for fragments.
"""

import msgspec

from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.checkpoint_messages import CheckpointInfo
from agiledart_recovery.wire.names import RunId


class SnapshotLocation(msgspec.Struct, frozen=True, array_like=True):
    """A task snapshot on the disk of the node that saved it.

    Args:
        stage, generation, index: of the instance; `role`: source, stage or sink.
        most: upper limit of its size in bytes.
        content: all of it, where the register holds it; then it is on no disk.
    """

    host: Peer
    stage: int
    generation: int
    index: int
    role: str
    digest: bytes
    most: int
    content: bytes = b""


class GatherCheckpoint(Effect, frozen=True, gc=False):
    """Combine these snapshots into one file. `Completed.result`: the `CheckpointInfo` with hash and size.

    Args:
        about: description known before; without a name the file is temporary and deleted automatically.
        specification, plan: of the topology, in their wire forms.
        snapshots: in the order of their chains, oldest first.
    """

    request: int
    about: CheckpointInfo
    specification: bytes
    plan: bytes
    snapshots: tuple[SnapshotLocation, ...]


class FetchCheckpoint(Effect, frozen=True, gc=False):
    """Fetch the file of a checkpoint from a node and keep it; temporarily when it has no name, or with `is_temporary`."""

    request: int
    replica_node: Peer
    checkpoint: CheckpointInfo
    is_temporary: bool = False


class ReadCheckpoints(Effect, frozen=True, gc=False):
    """List the checkpoints on this node's disk. `Completed.result`: tuple of `CheckpointInfo`."""

    request: int


class DropCheckpoint(Effect, frozen=True, gc=False):
    """Delete the checkpoint of this name if it has this hash and belongs to this run."""

    request: int
    name: str
    digest: bytes
    run: RunId


class AllowCheckpointFetch(Effect, frozen=True, gc=False):
    """Permit a node to fetch the checkpoint with this hash for a limited time.

    The node is to keep a copy, or it has presented a signed command of a user with the permission.
    """

    digest: bytes
    node: NodeId


class FetchSnapshot(Effect, frozen=True, gc=False):
    """Fetch a snapshot out of a checkpoint on another node, and store it with the snapshots of a run."""

    request: int
    replica_node: Peer
    run: RunId
    digest: bytes
    most: int
