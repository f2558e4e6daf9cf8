"""The JSON documents that answer users' requests, as types: answers are made of them, and so are `docs/reference/schemas/*.json`.

Times are wall milliseconds since 1970-01-01 UTC (0: unknown), other units stand in the names. Fields are only added.
"""

from typing import Any

import msgspec

from agiledart_node.wire.admission_responses import (
    AuditResponse,
    BansResponse,
    RenewalResponse,
    SecretsResponse,
    TokensResponse,
)
from agiledart_node.wire.change_responses import ChangeResponse, ChangeRow, DrainResponse
from agiledart_node.wire.checkpoint_responses import (
    ExportResponse,
    InstanceSnapshotRow,
    QuorumRecoveryResponse,
    RemovalResponse,
    RetainedCheckpointRow,
)


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object without other fields than these."""


class SubmitResponse(Response, frozen=True):
    """`submit`: the application runs.

    Args:
        placement: stage → names of its nodes in the order of its instances.
        nodes: nodes that host an instance.
        coordinator: node that counts the ends of instances.
        paths: JOIN paths, source node first, sink node last.
        relaxed: placement rules given up for want of room: `same application`, `balance`.
        seconds_to_running: from the request to the moment when all instances listened.
        scheduler: node that deployed it and serves it.
        queued_seconds: of that time, spent in the scheduler's line.
        reasons: stage → why it is not on the node of its path; only such stages.
        ways: what rows pass from each source to each sink; several nodes of one stage with commas between.
    """

    name: str
    version: int
    state: str
    placement: dict[str, list[str]]
    nodes: list[str]
    coordinator: str
    paths: list[list[str]]
    relaxed: list[str]
    strategy: str
    seconds_to_running: float
    scheduler: str = ""
    queued_seconds: float = 0.0
    reasons: dict[str, str] = {}
    data_paths: list[list[str]] = []


class CheckRow(Response, frozen=True):
    """A source or sink, tried on its node, or (without a stage) a node on which the code does not load.

    Args:
        connector: what it would read or write, as in `--set`.
        text: what was found, or what is wrong.
        guarantee: what becomes of its rows when something ends in the middle.
    """

    stage: str
    node: str
    connector: str
    is_good: bool
    text: str
    guarantee: str = ""


class DryRunResponse(Response, frozen=True):
    """`submit --dry-run`: what would run where; nothing was started. `digest`: of the specification, hex. Others: `SubmitResponse`."""

    name: str
    dry_run: bool
    digest: str
    placement: dict[str, list[str]]
    paths: list[list[str]]
    relaxed: list[str]
    strategy: str
    reasons: dict[str, str] = {}
    data_paths: list[list[str]] = []
    checks: list[CheckRow] = []


class RecoveryRow(Response, frozen=True):
    """What is being recovered.

    Args:
        life: that is being entered, or entered last; `from_epoch`: the committed epoch at which it begins.
        reason: what was lost, or broke.
        phase: plan, fetch, restore, replay (until the first epoch of this life is committed), waiting; or island: of a side of a
            cut that works on without the majority of the voters.
        waits_for: nodes without which it cannot go on; of an island: voters that are not reached.
        seconds: since the loss was seen; of an island: since the last commit.
        bytes, of_bytes: of fragments: fetched, and to be fetched.
        attempt: lives that were begun since.
        remedy: what to do where those for which it waits are gone for ever; empty: nothing but waiting helps, or nothing is needed.
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
    """What is safe.

    Args:
        committed: the last committed epoch; `life`: of the run.
        age_s: since it was committed; null when its coordinator has seen no commit yet.
        took_ms: from its barrier's order to its commit.
        bytes: of everything that its instances saved.
        survives: so many machines may be lost at once, whichever they are, without a state being lost; null: there is no state.
        coordinator: node that coordinates epochs and lives.
        pause_ms_max: for so long rows of an instance had to wait at once for the last committed epoch, at the most.
        interval_s: how long after one epoch the next begins now.
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


class ApplicationRow(Response, frozen=True):
    """One application in `list`.

    Args:
        state: deploying, running, recovering, island, finished, failed or stopped.
        recovery: of one that is recovering, or an island.
        epoch: of one that is saved by epochs and runs, as far as its coordinator answers.
        reason: why it is in a final state.
        changed_ms: when it came into its state.
        is_stopping: a user asked for its end; its sources are drained.
        owner: the key that submitted it, hex; empty when it is older than owners are.
        shared: keys that may act on it, too.
        by_hearsay: it is `failed` by the word of nodes that host nothing of it; while it lives its hosts take that back.
    """

    name: str
    version: int
    state: str
    reason: str
    submitter: str
    submitted_to: str
    submitted_ms: int
    running_ms: int
    changed_ms: int
    is_stopping: bool
    seconds_to_running: float
    placement: dict[str, list[str]]
    owner: str
    shared: list[str]
    is_unverified: bool = False
    recovery: RecoveryRow | None = None
    epoch: EpochRow | None = None


class ListResponse(Response, frozen=True):
    """`list`: all applications ever submitted, by name, as far as who asks may see them.

    Args:
        unreadable: records that the ring did not give.
    """

    applications: list[ApplicationRow]
    unreadable: int


class HistoryRow(Response, frozen=True):
    """A change of state."""

    at_ms: int
    state: str
    text: str


class StageRow(Response, frozen=True):
    """One stage in `status`.

    Args:
        kind: source, operator or sink.
        instances: objects with at least `index` and `node`; of a live instance also `steps` (rows_in, rows_out, dropped
            by step), `queued_rows`, `state_keys`, `event_time` (ms), `finished`, `age_ms` of these, `groups` (how many of the
            128 key groups it owns) and `group_ranges` (which ones, of a stage by key) where the stage may have several,
            `unsaved` (why it could not be saved at its last epoch, while that is so), and figures of its executor.
        score, wanted: of a stage that scales by itself: health score (1: just enough), and instances that it should have.
        is_held: it keeps its number until `agiledart scale APP STAGE auto`.
    """

    name: str
    kind: str
    parallelism: int
    instances: list[dict[str, Any]]
    score: float | None = None
    wanted: int | None = None
    keeps_number: bool = False


class LatencyRow(Response, frozen=True):
    """Read-to-write times of one sink, milliseconds."""

    samples: int
    p50: float
    p95: float
    p99: float
    largest: float


class StepRow(Response, frozen=True):
    """Rows of one step.

    Args:
        dropped: rows that left nothing behind.
        skipped, dead_letters: for which its code raised, and its error policy went on.
        late: that came too late for it.
        taken: that went into its state: a window, a running value, a table, a match under way.
        failed: results and timers of it that raised.
    """

    rows_in: int
    rows_out: int
    dropped: int
    skipped: int = 0
    dead_letters: int = 0
    late: int = 0
    taken: int = 0
    failed: int = 0


class SummaryResponse(Response, frozen=True):
    """Totals of an application, live or at its end.

    Args:
        records_in: data lines of all sources, counted once.
        malformed: lines that were no records, by reason.
        late: records older than the source's tolerance.
        outliers: rows that the first step after a source dropped.
        results: rows written, by sink.
        latency_ms: by sink; only a latency when `paced`, else a backlog.
        first_ms, last_ms: first record read, last record written.
        shed: rows let go at sources because the mesh was slower than they came, by reason.
        waiting, spooled: rows that wait at sources, in memory and on disk; `spooled_ever`: that ever went to disk.
        instances_reporting: instances whose figures are in the totals.
        imbalances: places where the ledger does not add up (rows lost, repeated or miscounted); empty as it should be.
        repeated: rows that a sink which takes none back was given again, because the run was brought back, since it began, by sink;
            at most so many were seen twice. `duplicates_by_attempt`: (life, sink, rows) of the last lives.
        uncounted: sinks where more may have come again than is counted, because they moved from a node that was lost.
    """

    records_in: int
    malformed: dict[str, int]
    late: int
    outliers: int
    results: dict[str, int]
    latency_ms: dict[str, LatencyRow]
    paced: bool
    steps: dict[str, StepRow]
    instances_reporting: int
    first_ms: int = 0
    last_ms: int = 0
    wall_seconds: float = 0.0
    shed: dict[str, int] = {}
    waiting: int = 0
    spooled: int = 0
    spooled_ever: int = 0
    imbalances: list[str] = []
    duplicated: dict[str, int] = {}
    duplicates_by_attempt: list[tuple[int, str, int]] = []
    uncounted: list[str] = []


class RivalRow(Response, frozen=True):
    """Another run of the same name: submitted on the other side of a cut, or taken for dead when this one was submitted.

    Args:
        run: its number, hex.
        state, reason: as it stands, or how it ended. Its hosts end it as soon as they read of this run.
        at_ms: when it came into its state.
    """

    run: str
    version: int
    state: str
    reason: str
    submitted_to: str
    at_ms: int
    is_unverified: bool


class StatusResponse(ApplicationRow, frozen=True, kw_only=True):
    """`status`: the row of `list`, and more.

    Args:
        run: the run's number, hex.
        rivals: other runs of its name that live or whose end was not known.
        alone: as in `nodes`: then this answer is what a node without the others knows.
        clocks: as in `nodes`, of the nodes that it runs on and of the asked one.
        silent_nodes: hosting nodes that did not give figures in time.
        summary: empty while nothing has reported.
        logs: sink step → name of the log that it writes; only sinks that write one.
        latency_logs: sink step → name of the system's log of its sampled latencies; only sinks whose rows have a `ReadTime`.
        reasons, ways: as in `SubmitResponse`.
        delivery: what becomes of it, and of its rows, when a host dies.
        repeated: rows shown again since the run began, at most; the sum of the summary's `repeated`.
        lost: rows that a source had in the log of a lost node only, and went on without; at least. `losses`: (life, source, rows).
    """

    run: str
    rivals: list[RivalRow]
    paths: list[list[str]]
    nodes: list[str]
    silent_nodes: list[str]
    history: list[HistoryRow]
    stages: list[StageRow]
    summary: dict[str, Any]
    logs: dict[str, str]
    latency_logs: dict[str, str]
    isolation_warning: str = ""
    clocks: list[str] = []
    reasons: dict[str, str] = {}
    data_paths: list[list[str]] = []
    delivery: str = ""
    duplicated: int = 0
    lost: int = 0
    losses: list[tuple[int, str, int]] = []


class StopResponse(Response, frozen=True):
    """`stop`: it has ended. `summary` is empty when it was cut. `checkpoint`: the one that was kept, when that was asked for."""

    name: str
    version: int
    state: str
    summary: dict[str, Any]
    checkpoint: RetainedCheckpointRow | None = None


class ForgetResponse(Response, frozen=True):
    """`forget`: `list` shows it no more. `version`: the last one."""

    name: str
    version: int


class ShareResponse(Response, frozen=True):
    """`share`: the owner's key and those that may act on it, too, hex."""

    name: str
    version: int
    owner: str
    shared: list[str]


class ScalingMeasurements(Response, frozen=True):
    """What was measured of a stage in the last five seconds; null: not known.

    Args:
        offered: rows/s that the sources have for it, whether or not anybody takes them.
        backlog: rows that wait for it, there and upstream, as rows of this stage.
        true_rate: rows/s of one instance while it works.
        capacity: rows/s at which its first instance is full.
        busy, blocked: share of the time of its instances in their own work, and without room at an output.
        selectivity: rows out for each row in.
    """

    offered: float | None = None
    backlog: int | None = None
    true_rate: float | None = None
    capacity: float | None = None
    busy: float | None = None
    blocked: float | None = None
    selectivity: float | None = None


class ScalingStageRow(Response, frozen=True):
    """What a policy would want for one stage.

    Args:
        limits: numbers of instances that it was planned for.
        scales: it was given limits; else its number was given.
        health_score: what it can do as a share of what is due; null: nothing is due, or nobody knows.
        needed: instances that this interval asks for, whatever limits and patience say; null: nobody knows.
        wanted: instances that the policy would give it now.
        why: in words; `unknown_reason`: why nothing is known, else empty.
        is_held: it keeps its number until `agiledart scale APP STAGE auto`.
        waits_for: what stands in the way of what is wanted; empty: nothing.
        hot_group, hot_share: a key group with more rows than one instance can do, so that more instances do not help, and its
            share of the stage's rows, from a sample; null: there is none, or too few rows were looked at.
    """

    name: str
    kind: str
    instances: int
    limits: list[int]
    scales: bool
    measures: ScalingMeasurements
    health_score: float | None = None
    needed: int | None = None
    wanted: int | None = None
    why: str = ""
    unknown_reason: str = ""
    keeps_number: bool = False
    waits_for: str = ""
    hot_group: int | None = None
    hot_share: float | None = None


class ScalingResponse(Response, frozen=True):
    """`explain scaling`: stages that are let (`scale APP STAGE auto`) are scaled by this; for others it is advice.

    Args:
        policy: by name.
        stages: none of an application that has ended.
        changes: the last 64, oldest first, as the run's coordinator has them, or its record when it has ended (the newest in
            16 KiB); of runs that are saved by epochs.
        silent_nodes: hosting nodes that did not give figures in time.
    """

    name: str
    version: int
    state: str
    policy: str
    stages: list[ScalingStageRow]
    changes: list[ChangeRow]
    silent_nodes: list[str]


class CheckpointsResponse(Response, frozen=True):
    """`checkpoint`: what is safe of an application.

    Args:
        state: of the application.
        recovery, epoch: as in `status`; null when nobody coordinates it.
        elements: that the committed epoch and the one before it need; one may rest on others of its instance.
        kept: checkpoints of it that outlive its runs, or the one that was asked for by its name.
    """

    name: str
    version: int
    state: str
    recovery: RecoveryRow | None
    epoch: EpochRow | None
    snapshots: list[InstanceSnapshotRow]
    retained: list[RetainedCheckpointRow] = []


class RecoveryStepRow(Response, frozen=True):
    """What of a step decides what a failure costs.

    Args:
        role: source, step or sink; `kind`: which one.
        connector: of a source or sink, as it was submitted; else empty.
        has_log: a clock says what is late at this source, or it reads ahead: what it reads is kept in any case.
        sheds: it lets rows go while the mesh is slow.
        has_state: it remembers rows; `keyed`: by key.
        nodes: that run it.
        if_lost: what becomes of the application when its node (of a source or sink) or its state is lost: wait, move, fail, empty,
            previous.
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


class RecoveryFactsResponse(Response, frozen=True):
    """`explain recovery`: what decides what a failure costs an application.

    Args:
        delivery: `exactly-once`, `at-least-once` or `at-most-once`.
        merges: rows of several sources are merged by position: user code before that must do the same again.
        steps: in the order of the rows.
    """

    name: str
    version: int
    state: str
    delivery: str
    merges: bool
    steps: list[RecoveryStepRow]


class LatencyPositionRow(Response, frozen=True):
    """Where a node lies in the space of latencies.

    Args:
        ms: three axes.
        height_ms: of its own access line, on top of any distance.
        error: how far off this may be, as a share of the distance.
    """

    ms: list[float]
    height_ms: float
    error: float


class NodeIdentityRow(Response, frozen=True):
    """Who a node is: what all rows about nodes begin with."""

    name: str
    node_id: str
    incarnation: int
    address: str
    zone: str
    host: str


class NodeRow(NodeIdentityRow, frozen=True):
    """One node. Fields behind `answers` are null when it does not answer.

    Args:
        node_id: 32 hex digits.
        incarnation: number of its life.
        address: `host:port` of its links.
        rtt_ms: smoothed round trip from the asked node; null when unknown.
        coordinate: where it lies in the space of latencies; null when unknown.
        schedules: applications that it serves as scheduler; null: it is no scheduler.
        key: its public key, hex; empty where the asked agent has no link to it.
        clock_s: how far its clock is ahead of most, seconds (below zero: behind); null: not measured.
        software: its version of AgileDart; specification: the form of specifications that it knows; empty and 0: too old to say.
        is_draining: it was told to give its work away, and takes none.
    """

    is_this_node: bool
    rtt_ms: float | None
    answers: bool
    coordinate: LatencyPositionRow | None = None
    instances: int | None = None
    capacity: int | None = None
    executors: int | None = None
    applications: list[str] | None = None
    is_leaving: bool | None = None
    schedules: int | None = None
    key: str = ""
    clock_s: float | None = None
    software: str = ""
    specification: int = 0
    is_draining: bool = False


class NodesResponse(Response, frozen=True):
    """`nodes`: the asked node and those that it knows (at most 256 rows).

    Args:
        known: how many these are.
        refused: how often the asked agent turned somebody away, by reason; the agent adds it.
        alone: what to say when the asked node reaches no other node, and should; the agent adds it.
        clocks: those that are wrong, each in words: `clock of a2 is 3,600 s behind`.
    """

    nodes: list[NodeRow]
    known: int
    refused: dict[str, int] = {}
    isolation_warning: str = ""
    clocks: list[str] = []


class HopRow(NodeIdentityRow, frozen=True):
    """One node on a way."""

    rtt_from_here_ms: float | None


class RouteResponse(Response, frozen=True):
    """`route`: the asked node first, the root of the key last.

    Args:
        round_trip_ms: the probe's way and the direct answer.
    """

    key: str
    hops: int
    path: list[HopRow]
    round_trip_ms: float


class LogRow(Response, frozen=True):
    """One line of user code. `number` counts the lines of the application at that node."""

    node: str
    number: int
    at_ms: int
    step: str
    text: str


class LogsResponse(Response, frozen=True):
    """`logs`: lines in the order of their times. Give `after` back to continue behind the last line."""

    name: str
    state: str
    lines: list[LogRow]
    after: dict[str, int]
    silent_nodes: list[str]


class TapSampleRow(Response, frozen=True):
    """A row that left the step: `instance` at `node`, event time `time_ms` (null where it does not travel with the rows); its
    fields, or a text when it is too long.
    """

    node: str
    instance: int
    time_ms: int | None
    row: Any


class TapResponse(Response, frozen=True):
    """`tap`: a sample, each node's rows in order. Give `after` back to continue behind the last row.

    Args:
        passed: rows that left the step on the nodes that answered since the tap was opened there.
    """

    name: str
    version: int
    state: str
    step: str
    rows: list[TapSampleRow]
    passed: int
    after: dict[str, int]
    silent_nodes: list[str]


class InfoResponse(NodeIdentityRow, frozen=True, forbid_unknown_fields=False):
    """`info`: what the node knows of itself. The agent adds fields of its own.

    Args:
        overlay: counts of the ring protocol.
        ignored_messages: messages that were not acted on, by reason.
    """

    joined: bool
    is_leaving: bool
    is_draining: bool
    known_nodes: int
    instances: int
    capacity: int
    executors: int
    applications: list[str]
    overlay: dict[str, Any]
    ignored_messages: dict[str, int]


RESPONSES: dict[str, type[msgspec.Struct]] = {
    "submit": SubmitResponse,
    "submit-dry-run": DryRunResponse,
    "list": ListResponse,
    "status": StatusResponse,
    "summary": SummaryResponse,
    "stop": StopResponse,
    "share": ShareResponse,
    "forget": ForgetResponse,
    "bans": BansResponse,
    "audit": AuditResponse,
    "tokens": TokensResponse,
    "renewal": RenewalResponse,
    "secrets": SecretsResponse,
    "explain-scaling": ScalingResponse,
    "explain-recovery": RecoveryFactsResponse,
    "checkpoint": CheckpointsResponse,
    "checkpoint-export": ExportResponse,
    "checkpoint-remove": RemovalResponse,
    "checkpoint-recover": QuorumRecoveryResponse,
    "change": ChangeResponse,
    "drain": DrainResponse,
    "nodes": NodesResponse,
    "route": RouteResponse,
    "logs": LogsResponse,
    "tap": TapResponse,
    "info": InfoResponse,
}
"""Name of a schema file → the type of the body."""


def schema_text(name: str) -> str:
    """The JSON Schema (draft 2020-12) of a body, as it stands in the documentation."""
    schema = msgspec.json.schema(RESPONSES[name])
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
