"""Metrics of runs that survive their hosts: epochs, attempts, phases of recoveries, fragments."""

from collections.abc import Callable

from agiledart_agent.metrics.metric_declarations import (
    MetricDeclaration,
    RecoveryFigures,
    Samples,
    Scrape,
    Value,
    kind_of,
    samples_of,
)
from agiledart_kernel.observation import Observation
from agiledart_recovery.wire.observations import (
    AttemptBegan,
    AttemptEntered,
    CoordinationBegan,
    CoordinationLost,
    EpochCommitted,
    EpochPassedOver,
    FragmentReplaced,
    MessageIgnored,
    QuorumRecovered,
    RunRecovered,
    RunWaits,
    SnapshotDegraded,
    ValueAcknowledged,
    VoterExcluded,
    VoterReplaced,
)


def _counted(name: str, observation: type[Observation], meaning: str, *labels: str) -> MetricDeclaration:
    def samples(scrape: Scrape) -> Samples:
        counts = scrape.counted[observation]
        return samples_of(counts if labels else counts[""])

    return MetricDeclaration(name, "counter", meaning, labels, samples, observation)


def _figure(name: str, read: Callable[[RecoveryFigures], Value], meaning: str, *labels: str) -> MetricDeclaration:
    return MetricDeclaration(
        name, kind_of(name), meaning, labels, lambda scrape: samples_of(read(scrape.node.recovery))
    )


def _phases(scrape: Scrape) -> Samples:
    return samples_of({phase: ns / 1e9 for phase, ns in scrape.phases.items()})


def _ages(scrape: Scrape) -> Samples:
    ages: dict[str, float] = {}
    for application, age in scrape.node.recovery.commit_ages:
        label = scrape.app_label(application)
        ages[label] = max(age, ages.get(label, 0.0))
    return samples_of(ages)


def _missing(scrape: Scrape) -> Samples:
    missing: dict[str, int] = {}
    for application, nodes in scrape.node.recovery.missing:
        label = scrape.app_label(application)
        missing[label] = max(nodes, missing.get(label, 0))
    return samples_of(missing)


NOT_COUNTED: tuple[type[Observation], ...] = (
    CoordinationBegan,
    CoordinationLost,
    AttemptEntered,
    ValueAcknowledged,
)
"""Steps within the counted observations."""

# fmt: off
METRICS: tuple[MetricDeclaration, ...] = (
    _counted("agiledart_recovery_epochs_total", EpochCommitted, "Epochs that this node has committed as coordinator."),
    _counted("agiledart_recovery_skipped_epochs_total", EpochPassedOver,
        "Epochs that were not complete in time; their rows belong to the next ones. Growing: a host cannot save its state."),
    MetricDeclaration("agiledart_recovery_commit_age_seconds", "gauge",
        "Time since the last commit of an application that this node coordinates; above five intervals no epoch is committed. 0"
        " while no rows come.",
        ("app",), _ages),
    MetricDeclaration("agiledart_recovery_missing_nodes", "gauge",
        "Nodes for which an application that this node coordinates waits: it continues when they are back.", ("app",), _missing),
    _counted("agiledart_recovery_attempts_total", AttemptBegan,
        "Attempts that this node began as coordinator, by reason: first, lost, restarted, late, broken, drained, quorum_recovered.",
        "reason"),
    _counted("agiledart_recovery_recoveries_total", RunRecovered, "Recoveries that have ended with a committed epoch."),
    MetricDeclaration("agiledart_recovery_phase_seconds_total", "counter",
        "Time of these recoveries, by phase: plan, fetch, restore, replay, waiting.", ("phase",), _phases),
    _counted("agiledart_recovery_waiting_total", RunWaits,
        "Times that a run could not continue because a node was missing."),
    _counted("agiledart_recovery_degraded_snapshots_total", SnapshotDegraded,
        "Snapshots of this node with too few replica nodes: too few machines, or replica nodes that refuse."),
    _counted("agiledart_recovery_replaced_voters_total", VoterReplaced, "Failed voters whose voter slot went to another node."),
    _counted("agiledart_recovery_quorums_restored_total", QuorumRecovered,
        "Runs that this node continued without the majority of their voters, by an admin's command."),
    _counted("agiledart_recovery_voters_removed_total", VoterExcluded,
        "Runs that continued without this node's vote, which an admin declared lost."),
    _counted("agiledart_recovery_ignored_messages_total", MessageIgnored,
        "Invalid or outdated messages about runs, by reason.", "reason"),
    _figure("agiledart_recovery_refused_files_total", lambda figures: figures.refused_files,
        "Votes, entered attempts and parts of runs that this node's disk did not take: meanwhile it counts as failed to others."),
    _figure("agiledart_recovery_snapshots_total", lambda figures: figures.snapshots, "Snapshots that instances here have saved."),
    _figure("agiledart_recovery_snapshot_bytes_total", lambda figures: figures.snapshot_bytes, "Bytes of these snapshots."),
    _figure("agiledart_recovery_snapshot_pause_seconds_total", lambda figures: figures.snapshot_pause_ns / 1e9,
        "Time for which rows waited while these snapshots were made."),
    _figure("agiledart_recovery_snapshot_longest_pause_seconds", lambda figures: figures.snapshot_longest_ns / 1e9,
        "Longest single pause since the agent started: at a barrier, or while a slice of a large state was encoded."),
    _figure("agiledart_recovery_rebuilt_snapshots_total", lambda figures: figures.rebuilt,
        "Snapshots that were rebuilt here from fragments."),
    _figure("agiledart_recovery_fragments", lambda figures: figures.fragments, "Fragments that this node stores for other nodes."),
    _figure("agiledart_recovery_missing_fragments", lambda figures: figures.lacking,
        "Fragments of this node's snapshots that no reachable node has; they are made again where another node can take them."),
    _counted("agiledart_recovery_rereplicated_fragments_total", FragmentReplaced,
        "Fragments that this node has made again for another replica node, between two epochs."),
    _figure("agiledart_recovery_damaged_fragments_total", lambda figures: figures.damaged,
        "Stored fragments that the disk had damaged, found by hourly scrubs; each is dropped and made again."),
    _figure("agiledart_recovery_fragment_disk_bytes", lambda figures: figures.fragment_bytes, "Bytes of these fragments."),
    _figure("agiledart_recovery_fragment_traffic_bytes_total", lambda figures: figures.traffic,
        "Bytes of fragments that this node has sent to replica nodes (out) and fetched (in).", "direction"),
    _figure("agiledart_recovery_fragment_answers_total", lambda figures: figures.answers,
        "Answers to hosts that bring or fetch fragments; reason is the kind of answer, or of refusal.", "reason"),
)
# fmt: on
"""All metrics of recovery, in the order of the reference."""
