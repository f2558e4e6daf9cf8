"""Response schemas of the control API: JSON documents as types, from which `docs/reference/schemas/*.json` are generated.

Times are wall milliseconds since 1970-01-01 UTC (0: unknown); names of other quantities contain their unit. Fields are only added.
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
from agiledart_node.wire.feed_responses import FeedsResponse
from agiledart_node.wire.lease_responses import GateOrdersResponse, GatesResponse, HostLeaseRow, LeaseResponse
from agiledart_node.wire.model_messages import ModelResponse
from agiledart_node.wire.placement_responses import PlacementResponse


class Response(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object that rejects unknown fields."""


class SubmitResponse(Response, frozen=True):
    """Response to `submit`: the application runs.

    Args:
        placement: stage → names of its nodes in the order of its instances.
        nodes: nodes that host an instance.
        coordinator: node that counts the ends of instances.
        paths: JOIN paths, source node first, sink node last.
        relaxed: placement rules dropped for lack of capacity: `same application`, `balance`.
        seconds_to_running: from the request to the moment when all instances listened.
        scheduler: node that deployed and serves it.
        queued_seconds: part of that time spent in the scheduler's pending queue.
        reasons: stage → why it is not on the node of its path; only such stages.
        data_paths: nodes that rows pass from each source to each sink; several nodes of one stage are separated by commas.
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
    """A source or sink tested on its node, or (without a stage) a node on which the code does not load.

    Args:
        connector: the URL that it would read or write, as in `--set`.
        text: result of the test, or the error.
        guarantee: fate of its rows after a crash.
    """

    stage: str
    node: str
    connector: str
    is_good: bool
    text: str
    guarantee: str = ""


class DryRunResponse(Response, frozen=True):
    """Response to `submit --dry-run`: the planned placement; nothing was started.

    `digest`: of the specification, hex. Other fields as in `SubmitResponse`.
    """

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


class ApplicationRow(Response, frozen=True):
    """One application in `list`.

    Args:
        state: deploying, running, recovering, minority, finished, failed or stopped.
        recovery: of an application that is recovering or in a minority.
        epoch: of a running application with epochs, if its coordinator answers.
        reason: why it is in a final state.
        changed_ms: time at which it entered its state.
        is_stopping: a user requested its end; its sources are drained.
        owner: the key that submitted it, hex; empty for applications of releases without owners.
        shared: keys of other users that may act on it.
        is_unverified: nodes that host nothing of it report it as `failed`; living hosts correct that.
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
    """Response to `list`: all applications ever submitted that the requester may see, by name.

    Args:
        unreadable: number of records that the ring did not return.
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
            by step), `queued_rows`, `state_keys`, `event_time` (ms), `finished`, `age_ms` of these, `groups` (number of the
            128 key groups that it owns) and `group_ranges` (which ones, of a stage by key) where the stage may have several,
            `unsaved` (why its last snapshot failed, while that is so), `awaited_input` (`sources` that are silent while rows of
            those in `held` wait here, `since_ms`, `silent_ms`, `rows`), and measurements of its executor.
        score, wanted: of a stage that scales automatically: health score (1: just enough), and its target number of instances.
        keeps_number: its number stays fixed until `agiledart scale APP STAGE auto`.
    """

    name: str
    kind: str
    parallelism: int
    instances: list[dict[str, Any]]
    score: float | None = None
    wanted: int | None = None
    keeps_number: bool = False


class LatencyRow(Response, frozen=True):
    """Latency from read to write of one sink, milliseconds."""

    samples: int
    p50: float
    p95: float
    p99: float
    largest: float


class ServiceLevelRow(Response, frozen=True):
    """Shares of rows that kept the service level of a step.

    Args:
        slo_ms: time that a row may take: to a sink from its reading on, in another step in this step alone.
        rows: sampled rows of a sink; rows of the last five seconds of another step.
        real_time, near_real_time, relaxed: shares within 1, 2 and 5 times that time; null: no row is measured.
        is_estimate: from the rows that wait and are served, without their way between nodes.
    """

    step: str
    slo_ms: float
    rows: int = 0
    real_time: float | None = None
    near_real_time: float | None = None
    relaxed: float | None = None
    is_estimate: bool = False


class StepRow(Response, frozen=True):
    """Row counts of one step.

    Args:
        dropped: rows without a result.
        skipped, dead_letters: rows for which its code raised and its error policy continued.
        late: rows that arrived too late for it.
        taken: rows absorbed into its state: a window, a running value, a table, a partial match.
        failed: results and timers for which its code raised.
        rejected: rows that a sink, or the system behind it, could not take.
    """

    rows_in: int
    rows_out: int
    dropped: int
    skipped: int = 0
    dead_letters: int = 0
    late: int = 0
    taken: int = 0
    failed: int = 0
    rejected: int = 0


class SummaryResponse(Response, frozen=True):
    """Totals of an application, live or at its end.

    Args:
        records_in: data lines of all sources, each counted once.
        malformed: lines that were not valid records, by reason.
        late: records older than the source's tolerance.
        outliers: rows dropped by the first step after a source.
        results: rows written, by sink.
        latency_ms: by sink; a latency only when `paced`, otherwise a backlog.
        first_ms, last_ms: time of the first record read and of the last record written.
        shed: rows discarded at sources because the mesh was too slow for them, by reason.
        waiting, spooled: rows that wait at sources, in memory and on disk; `spooled_ever`: rows ever written to disk.
        instances_reporting: instances whose measurements are in the totals.
        imbalances: places where the ledger does not add up (rows lost, duplicated or miscounted); normally empty.
        duplicated: upper limit of the rows that non-transactional sinks received again after restarts, by sink.
            `duplicates_by_attempt`: (attempt, sink, rows) of the last attempts.
        uncounted: sinks with possible further duplicates, because they moved away from a lost node.
        service_levels: of sinks with a service level, and estimates for other steps that have one.
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
    service_levels: list[ServiceLevelRow] = []


class RivalRow(Response, frozen=True):
    """Another run of the same name: submitted on the other side of a partition, or considered dead when this one was submitted.

    Args:
        run: its number, hex.
        state, reason: present state, or the way it ended. Its hosts end it once they read of this run.
        at_ms: time at which it entered its state.
    """

    run: str
    version: int
    state: str
    reason: str
    submitted_to: str
    at_ms: int
    is_unverified: bool


class WaitingRow(Response, frozen=True):
    """One cause for which an application, or a part of it, waits.

    Args:
        cause: kind: `node`, `capacity`, `user call`, `disk`, `snapshot`, `outside`, `link`, `slow sink`, `silent input`,
            `checkpoint` or `full receiver`.
        text: the cause as a sentence.
        advice: a remedy.
        stage, index, node: the instance at which the cause is; empty: the whole application.
        seconds: for how long; null when it is unknown or in the text.
        blocks: stages that wait behind it.
    """

    cause: str
    text: str
    advice: str
    stage: str = ""
    index: int = 0
    node: str = ""
    seconds: float | None = None
    blocks: list[str] = []


class StatusResponse(ApplicationRow, frozen=True, kw_only=True):
    """Response to `status`: the row of `list`, with details.

    Args:
        run: the run's number, hex.
        rivals: other runs of its name that live or whose end was unknown.
        isolation_warning: as in `nodes`: then this answer is the view of an isolated node.
        clocks: as in `nodes`, of its nodes and of the asked one.
        silent_nodes: hosting nodes that did not report in time.
        summary: empty before the first report.
        logs: sink step → name of the log that it writes; only sinks that write one.
        latency_logs: sink step → name of the system's log of its sampled latencies; only sinks whose rows have a `ReadTime`.
        reasons, data_paths: as in `SubmitResponse`.
        delivery: guarantee for the application and its rows when a host dies.
        duplicated: upper limit of the rows emitted again since the run began; the sum of the summary's `duplicated`.
        lost: lower limit of the rows that existed only in the source log of a lost node. `losses`: (attempt, source, rows).
        waiting: causes for which it, or a part of it, waits, the gravest first; empty when nothing waits, or for another
            reason than those that nodes measure.
        edges: pairs of stage names, in the order of the plan: rows leave the first and enter the second.
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
    waiting: list[WaitingRow] = []
    edges: list[tuple[str, str]] = []


class StopResponse(Response, frozen=True):
    """Response to `stop`: the application has ended.

    `summary`: empty when it was cut. `checkpoint`: the retained checkpoint, if one was requested.
    """

    name: str
    version: int
    state: str
    summary: dict[str, Any]
    checkpoint: RetainedCheckpointRow | None = None


class ForgetResponse(Response, frozen=True):
    """Response to `forget`: `list` no longer shows the application. `version`: the last one."""

    name: str
    version: int


class ShareResponse(Response, frozen=True):
    """Response to `share`: the owner's key and the keys of other users that may act on it, hex."""

    name: str
    version: int
    owner: str
    shared: list[str]


class ScalingMeasurements(Response, frozen=True):
    """Measurements of a stage over the last five seconds; null: unknown.

    Args:
        offered: rows/s that the sources have for it, processed or not.
        backlog: rows that wait for it, at the stage and upstream, as rows of this stage.
        true_rate: rows/s of one instance while it works.
        capacity: rows/s at which its first instance is saturated.
        busy, blocked: share of the time that its instances spend on their own work, and blocked by a full output.
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
    """Result of a scaling policy for one stage.

    Args:
        limits: smallest and largest planned number of instances.
        scales: the stage was submitted with limits, not with a fixed number.
        health_score: capacity as a share of the demand; null: no demand, or unknown.
        needed: instances that this interval requires, before limits and delays of the policy; null: unknown.
        wanted: instances that the policy would choose now.
        why: reason in words; `unknown_reason`: why the score is unknown, else empty.
        keeps_number: its number stays fixed until `agiledart scale APP STAGE auto`.
        waits_for: obstacle to the wanted number; empty: none.
        hot_group, hot_share: a key group with more rows than one instance can process, so that further instances do not help,
            and its share of the stage's rows in a sample; null: none, or too few rows sampled.
        terms: figures that the policy of the run decided from, by name; `f` is its score.
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
    terms: dict[str, float] = {}


class ScalingResponse(Response, frozen=True):
    """Response to `explain scaling`: decisions for stages that scale automatically (`scale APP STAGE auto`), advice for others.

    Args:
        policy: by name.
        stages: empty for an application that has ended.
        changes: the last 64, oldest first, from the run's coordinator, or from its record after its end (the newest in
            16 KiB); only of runs with epochs.
        silent_nodes: hosting nodes that did not report in time.
    """

    name: str
    version: int
    state: str
    policy: str
    stages: list[ScalingStageRow]
    changes: list[ChangeRow]
    silent_nodes: list[str]


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


class LatencyPositionRow(Response, frozen=True):
    """Position of a node in the latency space.

    Args:
        ms: three axes.
        height_ms: delay of its own access line, added to any distance.
        error: estimated error, as a share of the distance.
    """

    ms: list[float]
    height_ms: float
    error: float


class NodeIdentityRow(Response, frozen=True):
    """Identity of a node: the first fields of all rows about nodes."""

    name: str
    node_id: str
    incarnation: int
    address: str
    zone: str
    host: str


class NodeRow(NodeIdentityRow, frozen=True):
    """One node. Fields after `answers` are null when it does not answer.

    Args:
        node_id: 32 hex digits.
        incarnation: number of its incarnation.
        address: `host:port` of its links.
        rtt_ms: smoothed round trip from the asked node; null when unknown.
        coordinate: position in the latency space; null when unknown.
        schedules: applications that it serves as scheduler; null: it is no scheduler.
        key: its public key, hex; empty where the asked agent has no link to it.
        clock_s: lead of its clock over most others, seconds (negative: behind); null: not measured.
        software: its version of AgileDart; specification: the form of specifications that it knows; empty and 0: not reported.
        is_draining: it moves its work away, and takes none.
        labels: abilities that its user gave it; cores: that its instances share.
        kind: of the asked node's link to it, `direct` or `relayed`; empty: there is no link. relay: name of the relay.
        outside: host under which nodes of other networks see it; empty: unknown.
        open: nodes of other networks reach it by a dial. held_by: names of the relays that lead to it, as it only dials out.
        speed: of one core, 1 is the reference; busy: share of its machine's processor time in use; free_memory_mb: that its machine
            can still give; null: not measured, or it runs a version that does not report it.
        lease: of its machine; null: no gate has leased it.
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
    labels: list[str] = []
    cores: int | None = None
    speed: float | None = None
    busy: float | None = None
    free_memory_mb: int | None = None
    kind: str = ""
    relay: str = ""
    outside: str = ""
    open: bool = False
    held_by: list[str] = []
    lease: HostLeaseRow | None = None


class NodesResponse(Response, frozen=True):
    """Response to `nodes`: the asked node and the nodes that it knows (at most 256 rows).

    Args:
        known: number of known nodes.
        refused: number of connections that the asked agent refused, by reason; the agent adds it.
        isolation_warning: warning when the asked node reaches no other node, and should; the agent adds it.
        clocks: wrong clocks, each in words: `clock of a2 is 3,600 s behind`.
        network: these nodes as a document `agiledart-network/1`; null unless requested.
        notes: remarks about figures that `network` lacks.
    """

    nodes: list[NodeRow]
    known: int
    refused: dict[str, int] = {}
    isolation_warning: str = ""
    clocks: list[str] = []
    network: dict[str, Any] | None = None
    notes: list[str] = []


class HopRow(NodeIdentityRow, frozen=True):
    """One node on a route."""

    rtt_from_here_ms: float | None


class RouteResponse(Response, frozen=True):
    """Response to `route`: the asked node first, the root of the key last.

    Args:
        round_trip_ms: duration of the probe's route and the direct answer.
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
    """Response to `logs`: lines in the order of their times. Send `after` back to continue after the last line."""

    name: str
    state: str
    lines: list[LogRow]
    after: dict[str, int]
    silent_nodes: list[str]


class TapSampleRow(Response, frozen=True):
    """A row that left the step.

    `instance`: at `node`; `time_ms`: event time, null where it does not travel with the rows; `row`: its fields, or a text when it
    is too long.
    """

    node: str
    instance: int
    time_ms: int | None
    row: Any


class TapResponse(Response, frozen=True):
    """Response to `tap`: a sample, each node's rows in order. Send `after` back to continue after the last row.

    Args:
        passed: rows that left the step on the answering nodes since the tap was opened there.
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
    """Response to `info`: the node's own state. The agent adds fields of its own.

    Args:
        overlay: counts of the ring protocol.
        ignored_messages: messages that the node ignored, by reason.
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
    "model": ModelResponse,
    "feeds": FeedsResponse,
    "explain-scaling": ScalingResponse,
    "explain-placement": PlacementResponse,
    "explain-recovery": RecoveryFactsResponse,
    "checkpoint": CheckpointsResponse,
    "checkpoint-export": ExportResponse,
    "checkpoint-remove": RemovalResponse,
    "checkpoint-recover": QuorumRecoveryResponse,
    "change": ChangeResponse,
    "drain": DrainResponse,
    "nodes": NodesResponse,
    "lease": LeaseResponse,
    "gate-orders": GateOrdersResponse,
    "provisioning": GatesResponse,
    "route": RouteResponse,
    "logs": LogsResponse,
    "tap": TapResponse,
    "info": InfoResponse,
}
"""Name of a schema file → the type of the response."""


def schema_text(name: str) -> str:
    """Return the JSON Schema (draft 2020-12) of a response, as in the documentation."""
    schema = msgspec.json.schema(RESPONSES[name])
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"
