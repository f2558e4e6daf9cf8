"""Messages between nodes about checkpoints that outlive their runs. Tags 470 to 479.

The bytes of checkpoints and snapshots travel over links of the service `fragments`; a requester names them by their hash.
Only nodes that know the run's register know the hashes of its snapshots. Every agent that sends `QueryRetained` learns the
hashes of retained files. Hence a node sends a retained file only to nodes that are to keep a copy, or that present the
signed command of a user with the permission (`RequestDownload`).
"""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count
from agiledart_kernel.machine import Message
from agiledart_kernel.name_patterns import ApplicationName, CheckpointName
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.wire.checkpoint_commands import ExportCheckpoint, RemoveCheckpoint
from agiledart_node.wire.commands import Stop
from agiledart_recovery.wire.names import RunId

MAX_RETAINED = 64
"""Checkpoints in one answer; a node keeps fewer."""

_Key = Annotated[bytes, msgspec.Meta(max_length=64)]
_Text = Annotated[str, msgspec.Meta(max_length=4_096)]
Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class CheckpointInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A checkpoint stored on a node as one file.

    Args:
        name: name under which it is retained.
        run: run that it was taken of; `attempt`, `epoch`: at which it was taken; `taken_ms`: since 1970.
        owner, shared: keys that may use it: those of the application at the time of the checkpoint.
        digest, size: of the file.
    """

    name: CheckpointName
    run: RunId
    attempt: Count
    epoch: Count
    taken_ms: Count
    owner: _Key
    shared: Annotated[tuple[_Key, ...], msgspec.Meta(max_length=64)]
    digest: Hash
    size: Count


class RequestCheckpoint(Message, frozen=True, gc=False, tag=470):
    """Request to the coordinator of a run: end it and retain its state, or export its state as one file that the sender fetches.

    Answered by `CheckpointReply` when that is done; the sender may repeat it meanwhile.

    Args:
        signed_command: the command signed by its user, where it changes something; the coordinator verifies it.
        submitter: requester, for people, where nothing is signed.
    """

    request: int
    application: ApplicationName
    version: Count
    command: Stop | ExportCheckpoint
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class CheckpointReply(Message, frozen=True, gc=False, tag=471):
    """The finished checkpoint, which is stored on the sender and on these nodes.

    Args:
        refusal: reason in words; `exit_code` for a command line.
        is_not_coordinator: this node does not coordinate the run.
    """

    request: int
    checkpoint: CheckpointInfo | None = None
    nodes: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=16)] = ()
    refusal: _Text = ""
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    is_not_coordinator: bool = False


class RequestCopy(Message, frozen=True, gc=False, tag=472):
    """Request of a voter to a participant of its run: fetch this checkpoint from the sender and keep it. Answered by `CopyReply`.

    `is_withdrawn`: delete the copy again; the run continues instead of ending there. A checkpoint of another run stays.
    """

    request: int
    checkpoint: CheckpointInfo
    is_withdrawn: bool = False


class CopyReply(Message, frozen=True, gc=False, tag=473):
    """The copy is on the sender's disk; or the reason why not."""

    request: int
    refusal: _Text = ""


class QueryRetained(Message, frozen=True, gc=False, tag=474):
    """Request for the checkpoints that the receiver retains. Answered by `RetainedCheckpointList`."""

    request: int


class RetainedCheckpointList(Message, frozen=True, gc=False, tag=475):
    """Checkpoints that the sender retains, and agents that may retain others."""

    request: int
    retained: Annotated[tuple[CheckpointInfo, ...], msgspec.Meta(max_length=MAX_RETAINED)]
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class RequestRemoval(Message, frozen=True, gc=False, tag=476):
    """Request to delete a retained checkpoint. Answered by `CopyReply`. `signed_command`: the command signed by its user."""

    request: int
    command: RemoveCheckpoint
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""


class RequestDownload(Message, frozen=True, gc=False, tag=477):
    """Request to fetch a retained checkpoint from the receiver. Answered by `CopyReply`. `signed_command`: signed by the user."""

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
