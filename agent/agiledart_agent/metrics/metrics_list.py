"""Every metric that an agent exposes: name, kind, labels, meaning. `docs/reference/metrics.md` is made from this list.

Names are `agiledart_<component>_<noun>_<unit>[_total]` in base units. Labels hold values of bounded sets only: never
the id of a node, a key or a message.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from agiledart_kernel.observe import Observation
from agiledart_node.scheduling.observations import (
    ApplicationWaits,
    ElectionBegun,
    SchedulerElected,
    SchedulerLookedUp,
    SchedulerLost,
    SchedulerResigned,
)
from agiledart_overlay.wire.observations import (
    AdmissionAborted,
    GapClosed,
    JoinerAdmitted,
    MessageDropped,
    NodeWasLate,
    PeerDeclaredFailed,
    PeerSuspected,
    RecordConflictMerged,
    RingJoined,
    RingLeft,
    RingRejoining,
    SelfRefuted,
    SuspicionRefuted,
)

LATENCY_BOUNDS_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
"""Upper bounds of the latency histogram's buckets."""


@dataclass(frozen=True)
class Declared:
    """One metric.

    Attributes:
        kind: `counter`, `gauge`, `histogram` or `info`.
        labels: the only ones that it has.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def family(self) -> Metric:
        """An empty family to be filled for one scrape."""
        match self.kind:
            case "counter":
                return CounterMetricFamily(self.name.removesuffix("_total"), self.help, labels=self.labels)
            case "gauge":
                return GaugeMetricFamily(self.name, self.help, labels=self.labels)
            case "histogram":
                return HistogramMetricFamily(self.name, self.help, labels=self.labels)
            case _:
                return InfoMetricFamily(self.name.removesuffix("_info"), self.help, labels=self.labels)


BUILD = Declared("agiledart_build_info", "info", "Version of AgileDart and of Python; always 1.", ("version", "python"))
READY = Declared("agiledart_agent_ready", "gauge", "1 while this node is a member of the ring and not leaving, else 0.")
ZONE = Declared("agiledart_agent_zone_info", "info", "Failure and latency zone of this node; always 1.", ("zone",))
REFUSALS = Declared(
    "agiledart_agent_refusals_total", "counter",
    "Links, requests and peers turned away, by reason.", ("reason",),
)  # fmt: skip
HTTP_REFUSALS = Declared(
    "agiledart_agent_http_refusals_total", "counter",
    "Requests to this port that were turned away: garbage, slow or too many clients.", ("reason",),
)  # fmt: skip
LEAVES = Declared("agiledart_overlay_leafset_peers", "gauge", "Peers in the leaf set: the nearest members in id.")
KNOWN = Declared("agiledart_overlay_known_peers", "gauge", "Peers that this node knows and holds for alive.")
SLOTS = Declared("agiledart_overlay_table_slots", "gauge", "Filled slots of the routing table.")
RECORDS = Declared("agiledart_overlay_records", "gauge", "Copies of records (applications, names) kept here.")
LINKS = Declared("agiledart_overlay_links", "gauge", "Open links to other agents.")
MESSAGES = Declared(
    "agiledart_overlay_messages_total", "counter",
    "Messages of the ring itself; direction is in or out.", ("direction",),
)  # fmt: skip
DROPPED = Declared(
    "agiledart_overlay_dropped_messages_total", "counter",
    "Messages between agents that were thrown away, by reason.", ("reason",),
)  # fmt: skip
FAILED_PEERS = Declared(
    "agiledart_overlay_failed_peers_total", "counter",
    "Peers that this node declared dead, by what gave it away.", ("reason",),
)  # fmt: skip
SUSPICIONS = Declared(
    "agiledart_overlay_suspicions_total", "counter", "Peers that answered neither this node nor its helpers."
)
REFUTED = Declared(
    "agiledart_overlay_refuted_suspicions_total", "counter", "Suspects that showed a sign of life after all."
)
SELF_REFUTED = Declared(
    "agiledart_overlay_self_refutations_total", "counter",
    "Times that others held this node for dead and it spoke up; growing: this node or its link is too slow.",
)  # fmt: skip
LATE_TIMERS = Declared(
    "agiledart_overlay_late_timers_total", "counter",
    "Own timers that fired so late that the node trusted its own judgement less: the machine is overloaded.",
)  # fmt: skip
ADMITTED = Declared(
    "agiledart_overlay_admitted_joiners_total", "counter", "New members that this node let into the ring."
)
CONFLICTS = Declared(
    "agiledart_overlay_record_conflicts_total", "counter", "Copies of a record that differed and were merged."
)
JOINS = Declared("agiledart_overlay_joins_total", "counter", "Times that this node became a member of the ring.")
REJOINS = Declared(
    "agiledart_overlay_rejoins_total", "counter",
    "Times that the ring had closed over this node, or that it met another ring, so that it had to join again.",
)  # fmt: skip
ABORTED = Declared(
    "agiledart_overlay_aborted_admissions_total", "counter",
    "Joiners that answered this node's call and did not get in; growing: links lose messages or joiners die.",
)  # fmt: skip
GAPS = Declared("agiledart_overlay_closed_gaps_total", "counter", "Gaps left by the dead that this node closed.")
SCHEDULED = Declared(
    "agiledart_scheduler_applications", "gauge", "Applications that this node serves as scheduler; missing: it is none."
)
LOOK_UPS = Declared(
    "agiledart_scheduler_lookups_total",
    "counter",
    "Schedulers that this node found for applications and that took them.",
)
ELECTIONS = Declared(
    "agiledart_scheduler_elections_total",
    "counter",
    "Elections that this node began because nobody with room was found.",
)
OFFICES = Declared("agiledart_scheduler_offices_taken_total", "counter", "Times that this node became a scheduler.")
RESIGNATIONS = Declared(
    "agiledart_scheduler_resignations_total",
    "counter",
    "Times that this node ceased to be one: idle, leaving or superseded.",
)
LOST_SCHEDULERS = Declared(
    "agiledart_scheduler_losses_total", "counter",
    "Times that an application coordinated here lost its scheduler and looked for another one.",
)  # fmt: skip
WAITS = Declared(
    "agiledart_scheduler_waits_total", "counter",
    "Applications that this node was to deploy and no node had room for, so that they had to wait.",
)  # fmt: skip
WAITING = Declared(
    "agiledart_scheduler_waiting_applications", "gauge",
    "Applications that wait at this node until another one has room for them; above 0: start agents or stop something.",
)  # fmt: skip
EXECUTORS = Declared("agiledart_executor_processes", "gauge", "Running executor processes.", ("app",))
EXECUTOR_MEMORY = Declared(
    "agiledart_executor_resident_memory_bytes", "gauge", "Resident memory of the executor processes.", ("app",)
)
LOG_READERS = Declared("agiledart_sink_log_readers", "gauge", "Connected readers of sink logs, for example Spark's.")
LOG_ANSWERS = Declared(
    "agiledart_sink_log_answers_total", "counter",
    "Answers to readers of sink logs; reason is the kind of answer, or why it was refused.", ("reason",),
)  # fmt: skip
LOG_ROWS = Declared("agiledart_sink_log_sent_rows_total", "counter", "Rows sent to readers of sink logs.")
LOG_BYTES = Declared("agiledart_sink_log_sent_bytes_total", "counter", "Bytes of rows sent to readers of sink logs.")
LOG_DISK = Declared(
    "agiledart_sink_log_disk_bytes", "gauge", "Space that the sink logs of an application take here.", ("app",)
)
INSTANCES = Declared(
    "agiledart_application_instances", "gauge",
    "Instances on this node; state is running, blocked (an output has no room) or finished.",
    ("app", "operator", "state"),
)  # fmt: skip
SOURCE_RECORDS = Declared(
    "agiledart_application_records_total", "counter", "Records that sources on this node took in.", ("app", "operator")
)
ROWS = Declared(
    "agiledart_application_rows_total", "counter",
    "Rows into and out of an operator; direction is in or out.", ("app", "operator", "direction"),
)  # fmt: skip
DROPPED_RECORDS = Declared(
    "agiledart_application_dropped_records_total", "counter",
    "Records that went no further; reason is late, malformed, shed (overload), filtered (the operator had no result for "
    "them), skipped or dead_letter (its code raised).",
    ("app", "operator", "reason"),
)  # fmt: skip
LATE = Declared(
    "agiledart_application_late_records_total", "counter",
    "Records before the newest seen, beyond the source's tolerance.", ("app", "operator"),
)  # fmt: skip
MALFORMED = Declared(
    "agiledart_application_malformed_records_total", "counter",
    "Lines of a source that were no record, by reason.", ("app", "operator", "reason"),
)  # fmt: skip
SHED = Declared(
    "agiledart_application_shed_records_total", "counter",
    "Records that a source let go because the mesh was slower than they came; reason is oldest, sample, spool_full or "
    "disk_full.", ("app", "operator", "reason"),
)  # fmt: skip
LEDGER = Declared(
    "agiledart_application_ledger_records_total", "counter",
    "Where records went; reason is read (lines of sources), delivered (written by sinks), late, malformed, shed, filtered, "
    "taken (into windows and other state), skipped, dead_letter or failed (results whose code raised).", ("app", "reason"),
)  # fmt: skip
UNDER_WAY = Declared(
    "agiledart_application_pending_records", "gauge",
    "Records under way; reason is waiting (at a source), spooled (on its disk) or queued (between stages).",
    ("app", "reason"),
)  # fmt: skip
IMBALANCES = Declared(
    "agiledart_application_ledger_imbalances", "gauge",
    "Places in the instances on this node where counts do not add up; above 0: records were lost, repeated or miscounted.",
    ("app",),
)  # fmt: skip
SPOOLED = Declared(
    "agiledart_application_spooled_records_total", "counter",
    "Records that a source put on disk because the mesh was slower than they came.", ("app", "operator"),
)  # fmt: skip
SPOOL = Declared(
    "agiledart_application_spool_length", "gauge", "Records that lie in the spool of a source.", ("app", "operator")
)
USER_ERRORS = Declared(
    "agiledart_application_user_errors_total", "counter",
    "Records for which an operator's code raised and its error policy went on; reason is the policy, skip or "
    "dead_letter, or result: no record was at fault.", ("app", "operator", "reason"),
)  # fmt: skip
FAILURES = Declared(
    "agiledart_application_failures_total", "counter",
    "Instances on this node that could not go on: user code raised, a process died, a disk was full.", ("app",),
)  # fmt: skip
LATENCY = Declared(
    "agiledart_application_end_to_end_latency_seconds", "histogram",
    "From the reading of a record to the writing of its result, at a sink; a backlog's age when no source is paced.",
    ("app", "operator"),
)  # fmt: skip
LATENCY_SAMPLES = Declared(
    "agiledart_application_latency_samples_total", "counter",
    "Latencies of sampled records at a sink; state is kept (in the log _latency.APP) or lost (the disk did not take them).",
    ("app", "operator", "state"),
)  # fmt: skip
QUEUE = Declared(
    "agiledart_application_queue_length", "gauge",
    "Rows that wait in a stage's merge (at a source: in its memory) and in its outputs, by the operator that leads the stage.",
    ("app", "operator"),
)  # fmt: skip
STATE_KEYS = Declared(
    "agiledart_application_state_keys", "gauge", "Keys that an operator remembers.", ("app", "operator")
)
LAG = Declared(
    "agiledart_application_watermark_lag_seconds", "gauge",
    "Wall clock minus the event time up to which the slowest running instance is complete; means something for live "
    "data only.", ("app", "operator"),
)  # fmt: skip
BUSY = Declared(
    "agiledart_application_busy_seconds_total", "counter",
    "Time in which instances worked; its rate is the busy ratio of the stage that the operator leads.",
    ("app", "operator"),
)  # fmt: skip

METRICS = (
    BUILD, READY, ZONE, REFUSALS, HTTP_REFUSALS,
    LEAVES, KNOWN, SLOTS, RECORDS, LINKS, MESSAGES, DROPPED, FAILED_PEERS, SUSPICIONS, REFUTED, SELF_REFUTED,
    LATE_TIMERS, ADMITTED, CONFLICTS, JOINS, REJOINS, ABORTED, GAPS,
    SCHEDULED, LOOK_UPS, ELECTIONS, OFFICES, RESIGNATIONS, LOST_SCHEDULERS, WAITS, WAITING,
    EXECUTORS, EXECUTOR_MEMORY,
    LOG_READERS, LOG_ANSWERS, LOG_ROWS, LOG_BYTES, LOG_DISK,
    LEDGER, UNDER_WAY, IMBALANCES,
    INSTANCES, SOURCE_RECORDS, ROWS, DROPPED_RECORDS, LATE, MALFORMED, SHED, SPOOLED, SPOOL, USER_ERRORS, FAILURES,
    LATENCY,
    LATENCY_SAMPLES, QUEUE, STATE_KEYS, LAG, BUSY,
)  # fmt: skip
"""In the order of the reference. Figures of the process itself (`process_*`) come from prometheus_client."""

COUNTED: Mapping[type[Observation], Declared | None] = {
    PeerDeclaredFailed: FAILED_PEERS,
    PeerSuspected: SUSPICIONS,
    SuspicionRefuted: REFUTED,
    SelfRefuted: SELF_REFUTED,
    NodeWasLate: LATE_TIMERS,
    JoinerAdmitted: ADMITTED,
    RecordConflictMerged: CONFLICTS,
    RingJoined: JOINS,
    RingRejoining: REJOINS,
    AdmissionAborted: ABORTED,
    GapClosed: GAPS,
    SchedulerLookedUp: LOOK_UPS,
    ElectionBegun: ELECTIONS,
    SchedulerElected: OFFICES,
    SchedulerResigned: RESIGNATIONS,
    SchedulerLost: LOST_SCHEDULERS,
    ApplicationWaits: WAITS,
    RingLeft: None,  # at the end of the process: nobody scrapes it any more
    MessageDropped: None,  # the overlay's own statistics have it
}
"""What each observation of core code counts as."""
