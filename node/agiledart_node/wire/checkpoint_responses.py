"""Answers to users about state that is saved: elements of epochs, and checkpoints that outlive their runs."""

import msgspec


class RetainedCheckpointRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint that outlives its run.

    Args:
        name: under which it is kept.
        application, version: whose state it is; life, epoch: at which it was taken; taken_ms: since 1970.
        bytes: of its file; digest: of all of it, in hex.
        nodes: that keep it.
    """

    name: str
    application: str
    version: int
    attempt: int
    epoch: int
    taken_ms: int
    bytes: int
    digest: str
    nodes: list[str]


class ExportResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`checkpoint export`: the file lies on the agent that was asked, for an hour; `ReadCheckpoint` gives its bytes.

    Args:
        name: of the checkpoint; empty: the newest epoch of an application that runs.
        application, version, life, epoch, taken_ms, bytes, digest: as in a kept one.
    """

    name: str
    application: str
    version: int
    attempt: int
    epoch: int
    taken_ms: int
    bytes: int
    digest: str


class RemovalResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`checkpoint remove`: these nodes keep it no longer."""

    name: str
    application: str
    nodes: list[str]


class QuorumRecoveryResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`checkpoint recover`: the application goes on without voters that are gone for ever, or would.

    Args:
        generation: how often that was done, this time among them.
        epoch, life: the committed epoch from which it goes on.
        without: voters that are gone; `left`: that answer; `voters`: of now, empty where it was only looked at.
        notes: what is to be known: which rows may appear twice, what waits, what cannot be rebuilt.
        done: whether it was carried out.
    """

    name: str
    version: int
    quorum_generation: int
    epoch: int
    attempt: int
    lost_voters: list[str]
    remaining_voters: list[str]
    voters: list[str]
    warnings: list[str]
    done: bool


class InstanceSnapshotRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one instance saved.

    Args:
        stage: its name; `index`: which instance; `node`: its host.
        epoch, life: of the snapshot.
        fragments_needed: so many of its fragments rebuild it, and `replica_nodes` have one each; 0: it lies on its host only (sources, sinks).
    """

    stage: str
    index: int
    node: str
    epoch: int
    attempt: int
    bytes: int
    fragments_needed: int
    replica_nodes: list[str]
