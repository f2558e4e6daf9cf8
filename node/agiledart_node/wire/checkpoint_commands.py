"""Commands about saved state: checkpoints of a run, those that outlive it, and runs without their voters."""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Message


class ImportedSnapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A task snapshot out of a checkpoint, from which a run starts.

    Args:
        stage: of the new plan; `index`: of the instance that saved it.
        digest, length: of its bytes.
    """

    stage: Annotated[int, msgspec.Meta(ge=0, le=65_535)]
    index: Annotated[int, msgspec.Meta(ge=0, le=65_535)]
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    length: Annotated[int, msgspec.Meta(ge=0)]


class CheckpointOrigin(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The checkpoint from which a run starts; its file is on the asked agent.

    Args:
        kind: `whole`: the whole state of the same topology; `steps`: the state of steps with the same names.
        about: application and checkpoint, for people.
        digest: of the file.
        snapshots: snapshots to import, by stage and instance; those of one instance oldest first.
    """

    kind: Annotated[str, msgspec.Meta(max_length=16)]
    about: Annotated[str, msgspec.Meta(max_length=256)]
    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    snapshots: Annotated[tuple[ImportedSnapshot, ...], msgspec.Meta(max_length=2_048)]


class Checkpoints(Message, frozen=True, gc=False, tag=227):
    """Show the saved state of an application with epochs. `take`: begin an epoch now, and answer after its commit."""

    name: str
    take: bool = False


class ExportCheckpoint(Message, frozen=True, gc=False, tag=231):
    """Export a checkpoint as one file on the asked agent.

    `name`: a retained checkpoint, or a running application whose newest epoch is exported.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]


class RemoveCheckpoint(Message, frozen=True, gc=False, tag=232):
    """Delete a retained checkpoint. `name`: its name, or the hash of its file (64 hex digits) where several have the name."""

    name: Annotated[str, msgspec.Meta(max_length=64)]


class RecoverRun(Message, frozen=True, gc=False, tag=235):
    """Continue an application after the permanent loss of the majority of its voters.

    Args:
        lost_voters: names or ids of the lost voters.
        check: only report the consequences.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]
    lost_voters: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=256)], ...], msgspec.Meta(min_length=1, max_length=16)
    ]
    check: bool = False
