"""Response schemas about recovery: the state of a run that recovers, its checkpoints, and what a failure would cost."""

from agiledart_node.wire.checkpoint_responses import InstanceSnapshotRow, RetainedCheckpointRow
from agiledart_node.wire.response import Response

WAITING, TAKEOVER = "waiting", "takeover"
"""Phases of a run that no answering node coordinates."""


class RecoveryRow(Response, frozen=True):
    """State of a recovery.

    Args:
        attempt: the attempt being entered, or entered last; `from_epoch`: the committed epoch at which it begins.
        reason: the loss or error that caused it.
        phase: plan, fetch, restore, replay (until the first epoch of this attempt is committed), waiting; minority: one side of
            a partition works on without the majority of the voters; takeover: rows go on, and another node becomes its coordinator.
        waits_for: nodes without which it cannot continue; in a minority, and at a takeover: voters that are not reached.
        seconds: since the loss was detected; in a minority: since the last commit.
        bytes, total_bytes: fragment bytes fetched, and fragment bytes to fetch.
        restarts: attempts begun since.
        remedy: advice when the awaited nodes are lost for ever; empty: only waiting helps, or nothing is needed.
    """

    attempt: int
    from_epoch: int
    reason: str
    phase: str
    waits_for: list[str]
    seconds: float
    bytes: int
    total_bytes: int
    restarts: int
    remedy: str = ""


class EpochRow(Response, frozen=True):
    """State of the saved epochs.

    Args:
        committed: the last committed epoch; `attempt`: of the run.
        age_s: time since its commit; null when its coordinator has not seen a commit yet.
        duration_ms: from the injection of its barriers to its commit.
        bytes: size of all its snapshots.
        tolerated_losses: number of machines, any of them, whose simultaneous loss loses no state; null: there is no state.
        coordinator: node that coordinates epochs and attempts.
        max_pause_ms: longest pause of an instance's rows for the last committed epoch.
        interval_s: time from one epoch to the next.
        is_idle: no rows have come since, so no epoch is due (`delivery="survive"`).
        standbys: stage → nodes that hold its state ready to take it over; none for a stage that asks for a standby and has no
            other node.
    """

    committed: int
    attempt: int
    age_s: float | None
    duration_ms: float
    bytes: int
    tolerated_losses: int | None
    coordinator: str = ""
    max_pause_ms: float = 0.0
    interval_s: float = 0.0
    is_idle: bool = False
    standbys: dict[str, list[str]] = {}


class CheckpointsResponse(Response, frozen=True):
    """Response to `checkpoint`: the saved state of an application.

    Args:
        state: of the application.
        recovery, epoch: as in `status`; null when no node coordinates it.
        snapshots: snapshots needed for the committed epoch and the one before it; one may build on others of its instance.
        retained: its checkpoints that outlive its runs, or the one requested by name.
    """

    name: str
    version: int
    state: str
    recovery: RecoveryRow | None
    epoch: EpochRow | None
    snapshots: list[InstanceSnapshotRow]
    retained: list[RetainedCheckpointRow] = []


class RecoveryStepRow(Response, frozen=True):
    """Properties of a step that decide the costs of a failure.

    Args:
        role: source, step or sink; `kind`: its type.
        connector: of a source or sink, as submitted; else empty.
        has_log: the source logs its rows in any case: a clock decides which rows are late, or it reads ahead (`spools`).
        sheds: it discards rows while the mesh is slow.
        has_state: it keeps state; `keyed`: by key.
        nodes: its nodes.
        if_lost: policy when its node (of a source or sink) or its state is lost: wait, move, fail, empty, previous.
        bytes: of its state, the sum of its instances' largest snapshots that the last checkpoints need; 0: none is known.
        replica_nodes: nodes that hold copies or fragments of it.
        standby: number of hosts that it asks for to hold its state ready; `standbys`: those that do.
    """

    name: str
    role: str
    kind: str
    connector: str
    has_log: bool
    sheds: bool
    has_state: bool
    keyed: bool
    nodes: list[str]
    if_lost: str = "wait"
    spools: bool = False
    bytes: int = 0
    replica_nodes: list[str] = []
    standby: int = 0
    standbys: list[str] = []


class RecoveryFactsResponse(Response, frozen=True):
    """Response to `explain recovery`: the facts that decide the costs of a failure for an application.

    Args:
        delivery: `survive`, `exactly-once`, `at-least-once` or `at-most-once`.
        merges: rows of several sources are merged by position: user code before the merge must be deterministic.
        steps: in the order of the rows.
    """

    name: str
    version: int
    state: str
    delivery: str
    merges: bool
    steps: list[RecoveryStepRow]
