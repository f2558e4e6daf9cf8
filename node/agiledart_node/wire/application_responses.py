"""Response schemas about applications: their list, their status, and their ends."""

from typing import Any

from agiledart_node.wire.checkpoint_responses import RetainedCheckpointRow
from agiledart_node.wire.recovery_responses import EpochRow, RecoveryRow
from agiledart_node.wire.response import Response


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
