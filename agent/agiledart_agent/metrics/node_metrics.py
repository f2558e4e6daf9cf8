"""Metrics of an agent itself: its ring, its links, its scheduler slot, its executors and sink logs."""

import platform
from collections import Counter
from collections.abc import Callable

from agiledart_agent.metrics.metric_declarations import (
    MetricDeclaration,
    NodeFigures,
    Samples,
    Scrape,
    SinkLogFigures,
    Value,
    kind_of,
    samples_of,
)
from agiledart_kernel.observation import Observation
from agiledart_kernel.version import VERSION
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
    JoinerAdmitted,
    NodeWasLate,
    PeerDeclaredFailed,
    PeerSuspected,
    RecordConflictMerged,
    RingJoined,
    RingRejoining,
    SelfRefuted,
    SuccessorReplaced,
    SuspicionRefuted,
)
from agiledart_overlay.wire.statistics import OverlayStatistics


def _info(name: str, read: Callable[[Scrape], tuple[str, ...]], meaning: str, *labels: str) -> MetricDeclaration:
    """Declare a metric of words that is always 1, and absent when they are empty."""
    return MetricDeclaration(
        name, "info", meaning, labels, lambda scrape: [(words, 1)] if any(words := read(scrape)) else []
    )


def _scrape(name: str, read: Callable[[Scrape], Value], meaning: str, *labels: str) -> MetricDeclaration:
    return MetricDeclaration(name, kind_of(name), meaning, labels, lambda scrape: samples_of(read(scrape)))


def _node(name: str, read: Callable[[NodeFigures], Value], meaning: str, *labels: str) -> MetricDeclaration:
    return _scrape(name, lambda scrape: read(scrape.node), meaning, *labels)


def _overlay(name: str, read: Callable[[OverlayStatistics], Value], meaning: str, *labels: str) -> MetricDeclaration:
    return _node(name, lambda node: None if node.overlay is None else read(node.overlay), meaning, *labels)


def _log(name: str, read: Callable[[SinkLogFigures], Value], meaning: str, *labels: str) -> MetricDeclaration:
    return _node(name, lambda node: read(node.sink_logs), meaning, *labels)


def _counted(name: str, observation: type[Observation], meaning: str, *labels: str) -> MetricDeclaration:
    def samples(scrape: Scrape) -> Samples:
        counts = scrape.counted[observation]
        return samples_of(counts if labels else counts[""])

    return MetricDeclaration(name, "counter", meaning, labels, samples, observation)


def _messages(ring: OverlayStatistics) -> Value:
    return {"in": sum(count for _, count in ring.received), "out": sum(count for _, count in ring.sent)}


def _dropped(node: NodeFigures) -> Counter[str]:
    return Counter(node.dropped) + Counter(dict(node.overlay.dropped) if node.overlay is not None else {})


def _processes(scrape: Scrape) -> Counter[str]:
    return Counter(scrape.app_label(application) for application, _ in scrape.node.executors)


def _memory(scrape: Scrape) -> Counter[str]:
    """Return the memory of executors; that of a process which several applications share is divided between them."""
    memory: Counter[str] = Counter()
    programs = Counter(pid for _, pid in scrape.node.executors)
    for application, pid in scrape.node.executors:
        memory[scrape.app_label(application)] += resident_bytes(pid) // programs[pid]
    return memory


def _shared(node: NodeFigures) -> int:
    return sum(count for count in Counter(pid for _, pid in node.executors).values() if count > 1)


def _disk(scrape: Scrape) -> Counter[str]:
    disk: Counter[str] = Counter()
    for application, size in scrape.node.sink_logs.disk:
        disk[scrape.log_label(application)] += size
    return disk


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmRSS:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0


# fmt: off
METRICS: tuple[MetricDeclaration, ...] = (
    _info("agiledart_build_info", lambda _: (VERSION, platform.python_version()),
        "Version of AgileDart and of Python; always 1.", "version", "python"),
    _node("agiledart_agent_ready", lambda node: 0 if node.unready else 1,
        "1 while this node is a member of the ring and not leaving, else 0."),
    _info("agiledart_agent_zone_info", lambda scrape: (scrape.zone,),
        "Failure and latency zone of this node; always 1.", "zone"),
    _node("agiledart_agent_refusals_total", lambda node: node.refusals,
        "Refused links, requests and peers, by reason.", "reason"),
    _scrape("agiledart_agent_http_refusals_total", lambda scrape: scrape.http_refusals,
        "Refused requests to this port: garbage, a foreign name, slow or too many clients.", "reason"),
    _overlay("agiledart_overlay_leafset_peers", lambda ring: ring.leaves,
        "Peers in the leaf set: the nearest members in id."),
    _overlay("agiledart_overlay_known_peers", lambda ring: ring.known_peers,
        "Peers that this node knows and considers alive."),
    _overlay("agiledart_overlay_table_slots", lambda ring: ring.table_slots, "Filled slots of the routing table."),
    _overlay("agiledart_overlay_records", lambda ring: ring.records,
        "Copies of records (applications, names) kept here."),
    _node("agiledart_overlay_isolated", lambda node: float(node.alone),
        "1 while this node reaches no other node of a network that has or had some: cut off, or the last node left."),
    _node("agiledart_clock_offset_seconds", lambda node: node.clock_off_seconds,
        "Seconds by which this clock is ahead of the median of this node's and its neighbours' clocks; below zero: behind."),
    _node("agiledart_overlay_links", lambda node: node.links, "Open links to other agents."),
    _node("agiledart_overlay_linked_peers", lambda node: dict(node.links_by_kind),
        "Peers with an open link by its kind: direct, relayed by another agent, or punched through routers.", "kind"),
    _node("agiledart_relay_reservations", lambda node: node.reservations,
        "Relays at which this agent, which only dials out, keeps links for those that want to reach it."),
    _node("agiledart_relay_circuits", lambda node: node.circuits,
        "Circuits of other nodes that pass through this agent now."),
    _node("agiledart_relay_bytes_total", lambda node: node.relayed_bytes,
        "Bytes of circuits that passed through this agent, both directions."),
    _node("agiledart_relay_refused_total", lambda node: dict(node.relay_refusals),
        "Circuits that this agent refused; reason is off, scope, self, no member, visited, quota, unreachable, no such place "
        "or ticket.", "reason"),
    _overlay("agiledart_overlay_messages_total", _messages,
        "Messages of the ring itself; direction is in or out.", "direction"),
    _node("agiledart_overlay_dropped_messages_total", _dropped,
        "Messages between agents that were dropped, by reason.", "reason"),
    _counted("agiledart_overlay_failed_peers_total", PeerDeclaredFailed,
        "Peers that this node declared failed, by evidence.", "reason"),
    _counted("agiledart_overlay_suspicions_total", PeerSuspected,
        "Peers that answered neither direct nor indirect probes."),
    _counted("agiledart_overlay_refuted_suspicions_total", SuspicionRefuted,
        "Suspected peers that gave a sign of life."),
    _counted("agiledart_overlay_self_refutations_total", SelfRefuted,
        "Times that this node refuted the suspicion of other nodes; growing: this node or its link is too slow."),
    _counted("agiledart_overlay_late_timers_total", NodeWasLate,
        "Own timers that fired so late that the node extends its own timeouts: the machine is overloaded."),
    _counted("agiledart_overlay_admitted_joiners_total", JoinerAdmitted,
        "New members that this node admitted to the ring."),
    _counted("agiledart_overlay_record_conflicts_total", RecordConflictMerged,
        "Copies of a record that differed and were merged."),
    _counted("agiledart_overlay_joins_total", RingJoined, "Times that this node became a member of the ring."),
    _counted("agiledart_overlay_rejoins_total", RingRejoining,
        "Times that this node joined again, because the ring had closed its key range or it met another ring."),
    _counted("agiledart_overlay_aborted_admissions_total", AdmissionAborted,
        "Joiners whose admission by this node failed; growing: links lose messages or joiners fail."),
    _counted("agiledart_overlay_closed_ranges_total", SuccessorReplaced, "Key ranges of failed nodes that this node closed."),
    _node("agiledart_scheduler_applications", lambda node: node.scheduled,
        "Applications that this node serves as scheduler; missing: it is no scheduler."),
    _counted("agiledart_scheduler_lookups_total", SchedulerLookedUp,
        "Schedulers that this node found for applications and that accepted them."),
    _counted("agiledart_scheduler_elections_total", ElectionBegun,
        "Elections that this node began because no scheduler with free capacity was found."),
    _counted("agiledart_scheduler_slots_acquired_total", SchedulerElected, "Times that this node became a scheduler."),
    _counted("agiledart_scheduler_resignations_total", SchedulerResigned,
        "Times that this node ceased to be a scheduler: idle, leaving or superseded."),
    _counted("agiledart_scheduler_losses_total", SchedulerLost,
        "Times that an application coordinated here lost its scheduler and looked for another."),
    _counted("agiledart_scheduler_pending_total", ApplicationWaits,
        "Applications that this node had to queue, because no node had free capacity for them."),
    _node("agiledart_scheduler_pending_applications", lambda node: node.waiting,
        "Applications in this node's pending queue, for which no node has free capacity; above 0: start agents or stop something."),
    _scrape("agiledart_executor_processes", _processes, "Running executor processes.", "app"),
    _node("agiledart_agent_sharing_executors", _shared,
        "Executors that run in a process with executors of other applications of their owner."),
    _scrape("agiledart_executor_resident_memory_bytes", _memory,
        "Resident memory of the executor processes.", "app"),
    _log("agiledart_sink_log_readers", lambda logs: logs.readers,
        "Connected readers of sink logs, for example Spark's."),
    _log("agiledart_sink_log_answers_total", lambda logs: logs.answers,
        "Answers to readers of sink logs; reason is the kind of answer, or of refusal.", "reason"),
    _log("agiledart_sink_log_sent_rows_total", lambda logs: logs.rows_sent, "Rows sent to readers of sink logs."),
    _log("agiledart_sink_log_sent_bytes_total", lambda logs: logs.bytes_sent,
        "Bytes of rows sent to readers of sink logs."),
    _log("agiledart_sink_log_left_out_batches_total", lambda logs: logs.batches_left_out,
        "Stored batches that were not sent, because none of their rows could match a reader's conditions."),
    _log("agiledart_sink_log_left_out_bytes_total", lambda logs: logs.bytes_left_out,
        "Bytes of these batches, and of columns that readers did not ask for."),
    _log("agiledart_sink_log_rewritten_segments_total", lambda logs: logs.rewritten,
        "Full segments of sink logs that were rewritten as columns."),
    _log("agiledart_feed_writers", lambda logs: logs.writers, "Connected writers of feeds."),
    _log("agiledart_feed_answers_total", lambda logs: logs.feed_answers,
        "Answers to writers of feeds; reason is the kind of answer, or of refusal.", "reason"),
    _log("agiledart_feed_published_rows_total", lambda logs: logs.rows_published,
        "Rows published to feeds; a repeated batch does not count."),
    _scrape("agiledart_sink_log_disk_bytes", _disk, "Disk space of the sink logs of an application on this node.", "app"),
)
# fmt: on
"""All metrics of the agent itself, in the order of the reference."""
