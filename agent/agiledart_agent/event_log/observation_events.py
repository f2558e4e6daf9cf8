"""Log events of observations: event name, level, text and fields.

An event on which an operator can act is a warning; an event that explains a warning needs `--verbose`. A node without
work and without trouble logs no warnings. The same kind is logged at most once a minute, so a link that flaps fills no
disk.
"""

from agiledart_kernel.observation import Observation
from agiledart_node.registering.observations import TokenOverused
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
    MessageDropped,
    NodeWasLate,
    PeerDeclaredFailed,
    PeerSuspected,
    RecordConflictMerged,
    RingJoined,
    RingLeft,
    RingRejoining,
    SelfRefuted,
    SuccessorReplaced,
    SuspicionRefuted,
)
from agiledart_recovery.wire.observations import (
    AttemptBegan,
    QuorumRecovered,
    RunRecovered,
    RunWaits,
    SnapshotDegraded,
    VoterExcluded,
    VoterReplaced,
)

LATE_NS = 1_000_000_000
"""A timer that fires so late means a machine that is overloaded or was asleep."""

Event = tuple[str, str, str, dict[str, object]]
"""(level, event, text, fields)."""


def log_event_of(observation: Observation) -> Event:
    """Return the log event of an observation. Level `debug` is only written with `--verbose`."""
    match observation:
        case JoinerAdmitted(joiner):
            name = joiner.name or joiner.node.short
            return "info", "peer.joined", f"{name} joined the ring next to this node", {"peer": joiner.node.hex}
        case SelfRefuted(refutations):
            text = "other nodes suspected that this node had failed; it or its links are too slow"
            return "warning", "node.suspected", text, {"times": refutations}
        case NodeWasLate(late_ns):
            seconds = round(late_ns / 1e9, 3)
            level = "warning" if late_ns >= LATE_NS else "debug"
            return (
                level,
                "node.timer_late",
                f"this node was {seconds} s late: overloaded, or asleep",
                {"seconds": seconds},
            )
        case RecordConflictMerged(version):
            text = "two versions of a record were merged: the ring was partitioned"
            return "warning", "record.merged", text, {"version": version}
        case PeerSuspected(peer):
            return "debug", "peer.suspected", f"{peer.name or peer.node.short} does not answer", {"peer": peer.node.hex}
        case SuspicionRefuted(peer):
            return (
                "debug",
                "peer.suspicion_refuted",
                f"{peer.name or peer.node.short} answers again",
                {"peer": peer.node.hex},
            )
        case PeerDeclaredFailed(peer, reason):  # the effect that follows is logged as peer.failed
            text = f"{peer.name or peer.node.short} is declared failed ({reason})"
            return "debug", "peer.declared_failed", text, {"peer": peer.node.hex, "reason": reason}
        case RingJoined(waited_ns, attempts):  # the daemon logs it in any case, as ring.joined
            fields: dict[str, object] = {"seconds": round(waited_ns / 1e9, 3), "attempts": attempts}
            return "debug", "ring.entered", "in the ring", fields
        case RingRejoining(reason):
            text = f"out of the ring because {reason}; joining again"
            return "warning", "ring.rejoining", text, {"reason": reason}
        case AdmissionAborted(joiner):
            text = f"{joiner.name or joiner.node.short} was admitted and did not join the ring"
            return "debug", "peer.not_admitted", text, {"peer": joiner.node.hex}
        case SuccessorReplaced(successor):
            text = f"the key range of the failed nodes is closed up to {successor.name or successor.node.short}"
            return "debug", "ring.range_closed", text, {"peer": successor.node.hex}
        case RingLeft():
            return "debug", "ring.left", "out of the ring", {}
        case MessageDropped(reason):
            return "debug", "message.dropped", f"a message was dropped: {reason}", {"reason": reason}
    return _of_node(observation)


def _of_node(observation: Observation) -> Event:
    fields: dict[str, object]
    match observation:
        case TokenOverused(token, allowed, used):
            text = f"{used:,} keys joined by token {token[:16]}, which allows {allowed:,}: the network was partitioned. They stay"
            return "warning", "token.overused", text, {"token": token, "allowed": allowed, "used": used}
        case SchedulerElected(domain, index, term):
            where = f"zone {domain}" if domain else "this network"
            fields = {"zone": domain, "index": index, "term": term}
            return "info", "scheduler.elected", f"this node is now scheduler {index + 1} of {where}", fields
        case SchedulerResigned(domain, index, reason):
            fields = {"zone": domain, "index": index, "reason": reason}
            return "info", "scheduler.resigned", f"this node is no longer a scheduler: {reason}", fields
        case SchedulerLost(application, scheduler):
            text = f"{scheduler.name or scheduler.node.short}, the scheduler of {application}, has failed; looking for another"
            return "info", "scheduler.lost", text, {"application": application, "peer": scheduler.node.hex}
        case ApplicationWaits(application, reason, waiting):
            text = f"{application} waits: {reason}"
            return "warning", "application.pending", text, {"application": application, "waiting": waiting}
        case SchedulerLookedUp(application, how, hops, elections):
            fields = {"application": application, "how": how, "hops": hops, "elections": elections}
            return "debug", "scheduler.found", f"a scheduler was found by {how}", fields
        case ElectionBegun(domain, index):
            return (
                "debug",
                "scheduler.election",
                "no node with free capacity was found",
                {"zone": domain, "index": index},
            )
    return _of_recovery(observation)


def _of_recovery(observation: Observation) -> Event:
    fields: dict[str, object]
    match observation:
        case AttemptBegan(run, attempt, reason, text):
            fields = {"application": run.app, "attempt": attempt, "reason": reason}
            if attempt == 1:
                return "debug", "recovery.first_attempt", f"{run.app} starts", fields
            return "warning", "recovery.restarted", f"{run.app} is restarted, attempt {attempt}: {text}", fields
        case RunRecovered(run, attempt, cause, took):
            seconds = {phase: round(ns / 1e9, 3) for phase, ns in took.items()}
            text = (
                f"{run.app} has recovered in {sum(seconds.values()):.1f} s: an epoch of attempt {attempt} is committed"
            )
            return (
                "info",
                "recovery.completed",
                text,
                {"application": run.app, "attempt": attempt, "cause": cause, **seconds},
            )
        case RunWaits(run, attempt, missing, reason):
            names = ", ".join(peer.name or peer.node.short for peer in missing)
            fields = {"application": run.app, "attempt": attempt, "nodes": [peer.node.hex for peer in missing]}
            return (
                "warning",
                "recovery.waiting",
                f"{run.app} waits for {names}" + (f": {reason}" if reason else ""),
                fields,
            )
        case SnapshotDegraded(run, instance, tolerated_losses):
            text = (
                f"the state of {instance} of {run.app} has too few replica nodes: it survives {tolerated_losses} losses"
            )
            fields = {"application": run.app, "instance": str(instance), "tolerated_losses": tolerated_losses}
            return "debug", "recovery.degraded", text, fields
        case QuorumRecovered(run, quorum_generation, epoch, voters, without):
            names = ", ".join(node.short for node in without)
            text = f"{run.app} continues at epoch {epoch} without {names}, by admin command: quorum generation {quorum_generation}"
            fields = {
                "application": run.app,
                "quorum_generation": quorum_generation,
                "voters": [node.hex for node in voters],
            }
            return "warning", "recovery.quorum_restored", text, fields
        case VoterExcluded(run, reported_by):
            text = f"{run.app} continues without this node's vote: an admin declared it lost, as {reported_by.short} reports"
            return "warning", "recovery.voter_removed", text, {"application": run.app, "peer": reported_by.hex}
        case VoterReplaced(run, gone, new):
            text = f"{new.short} replaces {gone.short} as a voter of {run.app}"
            return "info", "recovery.voter_replaced", text, {"application": run.app, "peer": new.hex}
    return "debug", "observation", f"{type(observation).__name__} {observation}", {}
