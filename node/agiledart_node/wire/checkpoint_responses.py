"""Response schemas about saved state: task snapshots of epochs, and checkpoints that outlive their runs."""

from agiledart_node.wire.response import Response


class RetainedCheckpointRow(Response, frozen=True):
    """A checkpoint that outlives its run.

    Args:
        name: name under which it is retained.
        application, version: application that it was taken of; attempt, epoch: at which it was taken; taken_ms: since 1970.
        bytes: size of its file; digest: hash of the whole file, hex.
        nodes: nodes that keep it.
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


class ExportResponse(Response, frozen=True):
    """Response to `checkpoint export`. The file stays on the asked agent for an hour; `ReadCheckpoint` returns its bytes.

    Args:
        name: of the checkpoint; empty: the newest epoch of a running application.
        application, version, attempt, epoch, taken_ms, bytes, digest: as in `RetainedCheckpointRow`.
    """

    name: str
    application: str
    version: int
    attempt: int
    epoch: int
    taken_ms: int
    bytes: int
    digest: str


class RemovalResponse(Response, frozen=True):
    """Response to `checkpoint remove`: nodes that deleted the checkpoint."""

    name: str
    application: str
    nodes: list[str]


class QuorumRecoveryResponse(Response, frozen=True):
    """Response to `checkpoint recover`: the application continues without its lost voters, or would with a real run of the command.

    Args:
        quorum_generation: number of quorum recoveries of this run, including this one.
        epoch, attempt: committed epoch from which the application continues.
        lost_voters: voters that are lost; `remaining_voters`: voters that answer; `voters`: the new voters, empty with `--check`.
        warnings: rows that may appear twice, nodes that the run waits for, state that cannot be rebuilt.
        done: whether the recovery was carried out.
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


class InstanceSnapshotRow(Response, frozen=True):
    """The task snapshot of one instance.

    Args:
        stage: name; `index`: of the instance; `node`: its host.
        epoch, attempt: of the snapshot.
        fragments_needed: number of fragments that rebuild it; each of `replica_nodes` stores one. 0: only its host stores it
            (sources, sinks), or the register (`is_in_register`).
    """

    stage: str
    index: int
    node: str
    epoch: int
    attempt: int
    bytes: int
    fragments_needed: int
    replica_nodes: list[str]
    is_in_register: bool = False
