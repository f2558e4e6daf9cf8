"""Metrics of the applications of a node: their records, their rows, their stages."""

from collections.abc import Callable, Mapping

from agiledart_agent.metrics.application_figures import ApplicationScrape, OperatorCounts, StageGauges
from agiledart_agent.metrics.metric_declarations import MetricDeclaration, Samples, Scrape, Value, kind_of, samples_of
from agiledart_dataflow.counts.service_compliance import of_sink

_OPERATOR = ("app", "operator")


def _application(
    name: str, read: Callable[[ApplicationScrape], Value], meaning: str, *labels: str
) -> MetricDeclaration:
    def samples(scrape: Scrape) -> Samples:
        for application in scrape.applications:
            yield from samples_of(read(application), application.label)

    return MetricDeclaration(name, kind_of(name), meaning, ("app", *labels), samples)


def _operator(
    name: str, read: Callable[[OperatorCounts], Value], meaning: str, *labels: str, kind: str = ""
) -> MetricDeclaration:
    def samples(scrape: Scrape) -> Samples:
        for application in scrape.applications:
            for operator, counts in application.totals.operators.items():
                yield from samples_of(read(counts), application.label, operator)

    return MetricDeclaration(name, kind or kind_of(name), meaning, (*_OPERATOR, *labels), samples)


def _stage(name: str, read: Callable[[StageGauges], Value], meaning: str, *labels: str) -> MetricDeclaration:
    """Declare a metric labelled with the operator that leads the stage."""

    def samples(scrape: Scrape) -> Samples:
        for application in scrape.applications:
            for operator, now in application.now.items():
                yield from samples_of(read(now), application.label, operator)

    return MetricDeclaration(name, kind_of(name), meaning, (*_OPERATOR, *labels), samples)


def _ledger(seen: ApplicationScrape) -> Value:
    """Return where all records of an application went, as far as they passed this node."""
    operators = seen.totals.operators.values()
    steps = [counts for counts in operators if not counts.is_source]
    return {
        "read": sum(counts.rows_in for counts in operators if counts.is_source),
        "delivered": sum(counts.delivered for counts in steps),
        "late": sum(counts.late for counts in operators),
        "malformed": sum(sum(counts.malformed.values()) for counts in operators),
        "shed": sum(sum(counts.shed.values()) for counts in operators),
        "filtered": sum(counts.filtered for counts in steps),
        "taken": sum(counts.taken for counts in steps),
        "skipped": sum(counts.skipped for counts in steps),
        "dead_letter": sum(counts.dead_letters for counts in steps),
        "failed": sum(counts.failed for counts in steps),
        "rejected": sum(counts.rejected for counts in steps),
    }


def _pending_records(seen: ApplicationScrape) -> Value:
    now = list(seen.now.values())
    return {
        "waiting": sum(counts.waiting for counts in now),
        "spooled": sum(counts.spooled for counts in now),
        "queued": sum(counts.queued for counts in now),
    }


def _dropped(counts: OperatorCounts) -> Value:
    if counts.is_source:
        malformed, shed = sum(counts.malformed.values()), sum(counts.shed.values())
        return {"malformed": malformed, "late": counts.late, "shed": shed}
    losses = {
        "late": counts.late,
        "skipped": counts.skipped,
        "dead_letter": counts.dead_letters,
        "rejected": counts.rejected,
    }
    return {"filtered": counts.filtered, **_some(losses)}


def _user_errors(counts: OperatorCounts) -> Value:
    errors = {"skip": counts.skipped, "dead_letter": counts.dead_letters, "result": counts.failed}
    return None if counts.is_source else _some(errors)


def _latency_samples(counts: OperatorCounts) -> Value:
    return {"kept": counts.samples_kept, "lost": counts.samples_lost} if counts.samples else None


def _compliance(counts: OperatorCounts) -> Value:
    return None if counts.slo_ms is None else of_sink("", counts.slo_ms, counts.latency).shares()


def _instances(now: StageGauges) -> Value:
    return {"running": now.running - now.blocked, "blocked": now.blocked, "finished": now.finished}


def _some(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts above zero."""
    return {reason: count for reason, count in counts.items() if count}


# fmt: off
METRICS: tuple[MetricDeclaration, ...] = (
    _application("agiledart_application_ledger_records_total", _ledger,
        "Where records went; reason is read (lines of sources), delivered (written by sinks), late, malformed, shed, "
        "filtered, taken (into windows and other state), skipped, dead_letter or failed (results whose code raised).", "reason"),
    _application("agiledart_application_pending_records", _pending_records,
        "Records in progress; reason is waiting (at a source), spooled (on its disk) or queued (between stages).", "reason"),
    _application("agiledart_application_ledger_imbalances", lambda seen: seen.totals.imbalances,
        "Places in the instances on this node where counts do not add up; above 0: records were lost, duplicated or miscounted."),
    _application("agiledart_channel_resent_frames_total", lambda seen: seen.totals.resent,
        "Frames between executors that were sent again over another link, because theirs was lost before an acknowledgement."),
    _application("agiledart_channel_duplicate_frames_total", lambda seen: seen.totals.duplicate_frames,
        "Frames between executors that arrived twice; the second one was dropped."),
    _application("agiledart_path_frames_total", lambda seen: dict(seen.totals.routes.frames),
        "Frames to other executors; path is direct, relayed by another node, or local: within this node.", "path"),
    _application("agiledart_route_changes_total", lambda seen: dict(seen.totals.routes.changes),
        "Times that rows moved to another path; reason is lost, silent, slow or thin (the fault of the earlier path), "
        "better, or direct again.", "reason"),
    _application("agiledart_link_success_ratio", lambda seen: seen.success,
        "Answers for each slot of 5 ms in which a probe was pending, of links that carry rows now: 1 where answers come within "
        "5 ms; path is direct, relayed or local.", "path"),
    _stage("agiledart_application_instances", _instances,
        "Instances on this node; state is running, blocked (an output is full) or finished.", "state"),
    _stage("agiledart_application_snapshot_failed_instances", lambda now: now.unsaved,
        "Instances on this node that could not be saved at their last epoch (a full disk, a file that was changed): no epoch "
        "is committed until they can be; `agiledart status` says why."),
    _operator("agiledart_application_records_total", lambda counts: counts.records if counts.is_source else None,
        "Records that sources on this node have read."),
    _operator("agiledart_application_rows_total", lambda counts: {"in": counts.rows_in, "out": counts.rows_out},
        "Rows into and out of an operator; direction is in or out.", "direction"),
    _operator("agiledart_application_dropped_records_total", _dropped,
        "Records that were dropped; reason is late, malformed, shed (overload), filtered (the operator had no result "
        "for them), skipped or dead_letter (its code raised).", "reason"),
    _operator("agiledart_application_late_records_total", lambda counts: counts.late if counts.late or counts.is_source else None,
        "Records earlier than the newest one seen, beyond the source's tolerance."),
    _operator("agiledart_application_malformed_records_total", lambda counts: counts.malformed,
        "Lines of a source that were no record, by reason.", "reason"),
    _operator("agiledart_application_shed_records_total", lambda counts: counts.shed,
        "Records that a source dropped because the mesh was slower than they came; reason is oldest, sample, spool_full or "
        "disk_full.", "reason"),
    _operator("agiledart_application_spooled_records_total", lambda counts: counts.spooled_ever or None,
        "Records that a source put on disk because the mesh was slower than they came."),
    _stage("agiledart_application_spool_length", lambda now: now.spooled if now.spooled or now.has_spooled else None,
        "Records in the spool of a source."),
    _operator("agiledart_application_duplicate_rows_total", lambda counts: counts.duplicated,
        "Rows that a sink without roll-back was given again, because the application was restarted after a failure; at "
        "most this many were visible twice."),
    _operator("agiledart_application_user_errors_total", _user_errors,
        "Records for which an operator's code raised and its error policy continued; reason is the policy, skip or "
        "dead_letter, or result: no record was at fault.", "reason"),
    _application("agiledart_application_failures_total", lambda seen: seen.failures,
        "Instances on this node that failed: user code raised, a process died, a disk was full."),
    _operator("agiledart_application_end_to_end_latency_seconds", lambda counts: counts.latency,
        "From the reading of a record to the writing of its result, at a sink; a backlog's age when no source is paced.",
        kind="histogram"),
    _operator("agiledart_sla_compliance_ratio", _compliance,
        "Share of the rows that a sink on this node wrote within its service level (`slo`); level is real_time, near_real_time or "
        "relaxed: within 1, 2 or 5 times that time.", "level"),
    _operator("agiledart_application_latency_samples_total", _latency_samples,
        "Latencies of sampled records at a sink; state is kept (in the log _latency.APP) or lost (the disk did not take "
        "them).", "state"),
    _stage("agiledart_application_queue_length", lambda now: now.waiting + now.queued,
        "Rows that wait in a stage's merge (at a source: in its memory) and in its outputs, by the operator that leads "
        "the stage."),
    _stage("agiledart_application_state_keys", lambda now: now.state_keys, "Keys in the state of an operator."),
    _stage("agiledart_application_watermark_lag_seconds", lambda now: now.lag_seconds,
        "Wall clock minus the event time up to which the slowest running instance is complete; meaningful for live "
        "data only."),
    _operator("agiledart_application_busy_seconds_total", lambda counts: counts.busy_ns / 1e9 if counts.leads_stage else None,
        "Time in which instances worked; its rate is the busy ratio of the stage that the operator leads."),
)
# fmt: on
"""All metrics of applications, in the order of the reference."""
