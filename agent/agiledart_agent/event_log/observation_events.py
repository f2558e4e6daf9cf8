"""Which of the things that core code reports stand in an agent's log: event name, level, words, fields.

What an operator can act on is a warning; what explains one is there with `--verbose`. A node that has nothing to do and
no trouble produces none of the former. The same kind is said at most once a minute: a link that flaps fills no disk.
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
    """How an observation is logged. Level `debug` is only written with `--verbose`."""
    match observation:
        case JoinerAdmitted(joiner):
            name = joiner.name or joiner.node.short
            return "info", "peer.joined", f"{name} joined the ring next to this node", {"peer": joiner.node.hex}
        case SelfRefuted(refutations):
            text = "others held this node for dead; it or its links are too slow"
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
            text = "two versions of a record were merged: the ring was in two parts"
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
            text = f"{peer.name or peer.node.short} is held for dead ({reason})"
            return "debug", "peer.declared_failed", text, {"peer": peer.node.hex, "reason": reason}
        case RingJoined(waited_ns, attempts):  # the daemon says it to everybody, as ring.joined
            fields: dict[str, object] = {"seconds": round(waited_ns / 1e9, 3), "attempts": attempts}
            return "debug", "ring.entered", "in the ring", fields
        case RingRejoining(reason):
            text = f"out of the ring because {reason}; joining again"
            return "warning", "ring.rejoining", text, {"reason": reason}
        case AdmissionAborted(joiner):
            text = f"{joiner.name or joiner.node.short} was called and did not come into the ring"
            return "debug", "peer.not_admitted", text, {"peer": joiner.node.hex}
        case SuccessorReplaced(successor):
            text = f"the gap left by the dead is closed up to {successor.name or successor.node.short}"
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
            text = f"{used:,} keys came by token {token[:16]}, which allows {allowed:,}: the network was in two parts. They stay"
            return "warning", "token.overused", text, {"token": token, "allowed": allowed, "used": used}
        case SchedulerElected(domain, index, term):
            where = f"zone {domain}" if domain else "this network"
            fields = {"zone": domain, "index": index, "term": term}
            return "info", "scheduler.elected", f"this node is scheduler {index + 1} of {where} now", fields
        case SchedulerResigned(domain, index, reason):
            fields = {"zone": domain, "index": index, "reason": reason}
            return "info", "scheduler.resigned", f"this node is a scheduler no longer: {reason}", fields
        case SchedulerLost(application, scheduler):
            text = f"{scheduler.name or scheduler.node.short}, the scheduler of {application}, is gone; looking for another"
            return "info", "scheduler.lost", text, {"application": application, "peer": scheduler.node.hex}
        case ApplicationWaits(application, reason, waiting):
            text = f"{application} waits: {reason}"
            return "warning", "application.pending", text, {"application": application, "waiting": waiting}
        case SchedulerLookedUp(application, how, hops, elections):
            fields = {"application": application, "how": how, "hops": hops, "elections": elections}
            return "debug", "scheduler.found", f"a scheduler was found by {how}", fields
        case ElectionBegun(domain, index):
            return "debug", "scheduler.election", "nobody with room was found", {"zone": domain, "index": index}
    return _of_recovery(observation)


def _of_recovery(observation: Observation) -> Event:
    fields: dict[str, object]
    match observation:
        case AttemptBegan(run, attempt, reason, text):
            fields = {"application": run.app, "attempt": attempt, "reason": reason}
            if attempt == 1:
                return "debug", "recovery.first_attempt", f"{run.app} begins", fields
            return "warning", "recovery.restarted", f"{run.app} is brought back, life {attempt}: {text}", fields
        case RunRecovered(run, attempt, cause, took):
            seconds = {phase: round(ns / 1e9, 3) for phase, ns in took.items()}
            text = f"{run.app} has recovered in {sum(seconds.values()):.1f} s: an epoch of life {attempt} is committed"
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
        case SnapshotDegraded(run, instance, survives):
            text = (
                f"the state of {instance} of {run.app} has fewer holders than it should: {survives} of them may be lost"
            )
            fields = {"application": run.app, "instance": str(instance), "tolerated_losses": survives}
            return "debug", "recovery.degraded", text, fields
        case QuorumRecovered(run, quorum_generation, epoch, voters, without):
            names = ", ".join(node.short for node in without)
            text = f"{run.app} goes on from epoch {epoch} without {names}, at an admin's word: generation {quorum_generation}"
            fields = {
                "application": run.app,
                "quorum_generation": quorum_generation,
                "voters": [node.hex for node in voters],
            }
            return "warning", "recovery.quorum_restored", text, fields
        case VoterExcluded(run, reported_by):
            text = (
                f"{run.app} goes on without this node's vote: an admin gave it up for lost; {reported_by.short} says so"
            )
            return "warning", "recovery.voter_removed", text, {"application": run.app, "peer": reported_by.hex}
        case VoterReplaced(run, gone, new):
            text = f"{new.short} votes in the register of {run.app} in place of {gone.short}"
            return "info", "recovery.voter_replaced", text, {"application": run.app, "peer": new.hex}
    return "debug", "observation", f"{type(observation).__name__} {observation}", {}
