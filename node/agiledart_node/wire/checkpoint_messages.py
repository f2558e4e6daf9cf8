"""What nodes say to each other about checkpoints that outlive their runs. Tags 470 to 479.

The bytes of a checkpoint, and of what it is made of, travel over links of the service `fragments`: who wants some names its hash.
Hashes of elements are known to those who know the run's register; those of kept files to every agent that asks what is kept
(`AskKept`), so those are given only to nodes that are to keep a copy, or that bring the order of a user who may (`AskLoan`).
"""

from typing import Annotated

import msgspec

from agiledart_kernel.count import Count
from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.machine import Message
from agiledart_kernel.orders import MAX_ORDER_BYTES
from agiledart_kernel.peer import Peer
from agiledart_node.wire.commands import ExportCheckpoint, RemoveCheckpoint, Stop
from agiledart_recovery.wire.names import Run

MAX_KEPT = 64
"""Checkpoints that a node tells of; it keeps fewer."""

_Name = Annotated[str, msgspec.Meta(max_length=MAX_APPLICATION_NAME)]
_Key = Annotated[bytes, msgspec.Meta(max_length=64)]
_Text = Annotated[str, msgspec.Meta(max_length=4_096)]
Hash = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class KnownCheckpoint(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A checkpoint that lies on a node as one file.

    Args:
        name: under which it is kept.
        run: whose state it is; `life`, `epoch`: at which it was taken; `taken_ms`: since 1970.
        owner, shared: keys that may use it: those of the application when it was taken.
        digest, size: of the file.
    """

    name: _Name
    run: Run
    life: Count
    epoch: Count
    taken_ms: Count
    owner: _Key
    shared: Annotated[tuple[_Key, ...], msgspec.Meta(max_length=64)]
    digest: Hash
    size: Count


class AskCheckpoint(Message, frozen=True, gc=False, tag=470):
    """To who coordinates a run: end it and keep its state, or put its state into one file that is fetched from you. Answered by
    `CheckpointIs` when that is done; it may be said again meanwhile.

    Args:
        order: the command signed by its user, where it changes something; whoever coordinates checks it.
        submitter: who asks, for people, where nothing is signed.
    """

    request: int
    application: _Name
    version: Count
    command: Stop | ExportCheckpoint
    order: Annotated[bytes, msgspec.Meta(max_length=MAX_ORDER_BYTES)] = b""
    submitter: Annotated[str, msgspec.Meta(max_length=256)] = ""


class CheckpointIs(Message, frozen=True, gc=False, tag=471):
    """It is done: this is the checkpoint, which lies on the sender, and on these others.

    Args:
        refusal: why not, in words; `exit_code` for a command line.
        is_elsewhere: this node does not coordinate the run.
    """

    request: int
    checkpoint: KnownCheckpoint | None = None
    nodes: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=16)] = ()
    refusal: _Text = ""
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)] = 1
    is_elsewhere: bool = False


class AskCopy(Message, frozen=True, gc=False, tag=472):
    """To a node that takes part in a run, by a voter of it: keep this checkpoint of it, too; fetch it from me. `CopyIs` answers.

    `is_back`: no more; the run has gone on in place of ending there. A checkpoint of another run stays.
    """

    request: int
    checkpoint: KnownCheckpoint
    is_back: bool = False


class CopyIs(Message, frozen=True, gc=False, tag=473):
    """It is on my disk; or why not."""

    request: int
    refusal: _Text = ""


class AskKept(Message, frozen=True, gc=False, tag=474):
    """Which checkpoints are kept there? Answered by `KeptAre`."""

    request: int


class KeptAre(Message, frozen=True, gc=False, tag=475):
    """These, and agents that may have others."""

    request: int
    kept: Annotated[tuple[KnownCheckpoint, ...], msgspec.Meta(max_length=MAX_KEPT)]
    known: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=1_024)] = ()


class AskRemoval(Message, frozen=True, gc=False, tag=476):
    """Keep this checkpoint no longer. Answered by `CopyIs`. `order`: the command signed by its user."""

    request: int
    command: RemoveCheckpoint
    order: Annotated[bytes, msgspec.Meta(max_length=MAX_ORDER_BYTES)] = b""


class AskLoan(Message, frozen=True, gc=False, tag=477):
    """Let me fetch this kept checkpoint from you. Answered by `CopyIs`. `order`: the command signed by its user."""

    request: int
    command: ExportCheckpoint
    order: Annotated[bytes, msgspec.Meta(max_length=MAX_ORDER_BYTES)] = b""


CheckpointMessage = AskCheckpoint | CheckpointIs | AskCopy | CopyIs | AskKept | KeptAre | AskRemoval | AskLoan
CHECKPOINT_ANSWERS = (CheckpointIs, CopyIs, KeptAre)
