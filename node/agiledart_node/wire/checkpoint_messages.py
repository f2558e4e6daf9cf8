"""What nodes say to each other about checkpoints that outlive their runs. Tags 470 to 479.

The bytes of a checkpoint, and of what it is made of, travel over links of the service `fragments`: who wants some names its hash.
Hashes of elements are known to those who know the run's register; those of kept files to every agent that asks what is kept
(`QueryRetained`), so those are given only to nodes that are to keep a copy, or that bring the order of a user who may (`RequestDownload`).
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.machine import Message
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.commands import ExportCheckpoint, RemoveCheckpoint, Stop
from agiledart_recovery.wire.names import RunId

MAX_RETAINED = 64
"""Checkpoints that a node tells of; it keeps fewer."""

_Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]
_Key = Annotated[bytes, msgspec.Meta(max_length=64)]
_Text = Annotated[str, msgspec.Meta(max_length=4_096)]
Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class CheckpointInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A checkpoint that lies on a node as one file.

    Args:
        name: under which it is kept.
        run: whose state it is; `life`, `epoch`: at which it was taken; `taken_ms`: since 1970.
        owner, shared: keys that may use it: those of the application when it was taken.
        digest, size: of the file.
    """

    name: _Name
    run: RunId
    attempt: Count
    epoch: Count
    taken_ms: Count
    owner: _Key
    shared: Annotated[tuple[_Key, ...], msgspec.Meta(max_length=64)]
    digest: Hash
    size: Count


class RequestCheckpoint(Message, frozen=True, gc=False, tag=470):
    """To who coordinates a run: end it and keep its state, or put its state into one file that is fetched from you. Answered by
    `CheckpointReply` when that is done; it may be said again meanwhile.

    Args:
        order: the command signed by its user, where it changes something; whoever coordinates checks it.
        submitter: who asks, for people, where nothing is signed.
    """

    request: int
    application: _Name
    version: Count
    command: Stop | ExportCheckpoint
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class CheckpointReply(Message, frozen=True, gc=False, tag=471):
    """It is done: this is the checkpoint, which lies on the sender, and on these others.

    Args:
        refusal: why not, in words; `exit_code` for a command line.
        is_elsewhere: this node does not coordinate the run.
    """

    request: int
    checkpoint: CheckpointInfo | None = None
    nodes: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=16)] = ()
    refusal: _Text = ""
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    is_not_coordinator: bool = False


class RequestCopy(Message, frozen=True, gc=False, tag=472):
    """To a node that takes part in a run, by a voter of it: keep this checkpoint of it, too; fetch it from me. `CopyReply` answers.

    `is_withdrawn`: no more; the run has gone on in place of ending there. A checkpoint of another run stays.
    """

    request: int
    checkpoint: CheckpointInfo
    is_withdrawn: bool = False


class CopyReply(Message, frozen=True, gc=False, tag=473):
    """It is on my disk; or why not."""

    request: int
    refusal: _Text = ""


class QueryRetained(Message, frozen=True, gc=False, tag=474):
    """Which checkpoints are kept there? Answered by `RetainedCheckpointList`."""

    request: int


class RetainedCheckpointList(Message, frozen=True, gc=False, tag=475):
    """These, and agents that may have others."""

    request: int
    retained: Annotated[tuple[CheckpointInfo, ...], msgspec.Meta(max_length=MAX_RETAINED)]
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class RequestRemoval(Message, frozen=True, gc=False, tag=476):
    """Keep this checkpoint no longer. Answered by `CopyReply`. `order`: the command signed by its user."""

    request: int
    command: RemoveCheckpoint
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class RequestDownload(Message, frozen=True, gc=False, tag=477):
    """Let me fetch this kept checkpoint from you. Answered by `CopyReply`. `order`: the command signed by its user."""

    request: int
    command: ExportCheckpoint
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


CheckpointMessage = (
    RequestCheckpoint
    | CheckpointReply
    | RequestCopy
    | CopyReply
    | QueryRetained
    | RetainedCheckpointList
    | RequestRemoval
    | RequestDownload
)
CHECKPOINT_REPLIES = (CheckpointReply, CopyReply, RetainedCheckpointList)
