"""Recovery status of a run for people, from what its coordinator knows, as the rows of `status`."""

from collections.abc import Callable, Iterable

import msgspec

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.records.application import MINORITY
from agiledart_node.wire.change_responses import ChangeRow
from agiledart_node.wire.recovery_responses import EpochRow, RecoveryRow
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.attempts.partition_side import PartitionSide, partition_side_of
from agiledart_recovery.fragments.placement import host_of
from agiledart_recovery.wire.register_value import RegisterValue, RunState

_PLAN: Codec[StagePlan] = Codec(StagePlan)

StatusRows = tuple[RecoveryRow | None, EpochRow | None]


def run_status(
    coordinator: Coordinator | None, now: Instant, known: Iterable[Peer], name_of: Callable[[NodeId], str]
) -> StatusRows:
    """Return the rows of a run that this node coordinates, (None, None) of any other. Without a recovery its row is None.

    Args:
        known: peers whose hosts are known.
        name_of: returns the name of a node, for people.
    """
    value = coordinator.known if coordinator is not None and coordinator.leads else None
    if coordinator is None or value is None:
        return None, None
    progress = coordinator.progress
    at = progress.committed_at
    epoch = EpochRow(
        committed=value.committed.epoch,
        attempt=value.attempt,
        age_s=None if at is None else round((now - at) / SECOND, 3),
        duration_ms=round(progress.epoch_ns / MILLISECOND, 3),
        bytes=sum(snapshot.length for saved in value.saved for snapshot in saved.chain),
        tolerated_losses=tolerated_losses(value, known),
        coordinator=name_of(coordinator.node),
        max_pause_ms=round(progress.pause_ns / MILLISECOND, 3),
        interval_s=round(coordinator.commit_protocol.interval_ns() / SECOND, 3),
        is_idle=coordinator.is_idle,
        standbys=standbys_of(value, name_of),
    )
    if progress.since is None or value.state is not RunState.RUNNING:
        return None, epoch
    got, of = progress.bytes()
    recovery = RecoveryRow(
        attempt=value.attempt,
        from_epoch=value.committed.epoch,
        reason=progress.reason,
        phase=progress.phase,
        waits_for=[_distinct_name(node, name_of(node), known) for node in progress.waits_for],
        seconds=round((now - progress.since) / SECOND, 3),
        bytes=got,
        total_bytes=of,
        restarts=progress.restarts,
        remedy=_remedy(value, progress.waits_for, name_of)
        if progress.phase == "waiting" and coordinator.lacks_voters
        else "",
    )
    return recovery, epoch


def standbys_of(value: RegisterValue, name_of: Callable[[NodeId], str]) -> dict[str, list[str]]:
    """Return, for each stage that asks for standbys, the names of the nodes that hold its state ready."""
    if not value.plan.wants_standby or not value.plan.body:
        return {}
    names = {str(stage.index): stage.name for stage in _PLAN.decode(value.plan.body).stages}
    held: dict[str, list[str]] = {}
    for assignment in value.plan.assignments:
        if assignment.standby:
            nodes = held.setdefault(names.get(assignment.instance.stage, assignment.instance.stage), [])
            hosts = [standby.host for standby in value.standbys if standby.instance == assignment.instance]
            nodes += [name for host in hosts if (name := name_of(host.node)) not in nodes]
    return held


def minority_status(
    value: RegisterValue | None,
    since: Instant | None,
    now: Instant,
    can_reach: Callable[[NodeId], bool],
    name_of: Callable[[NodeId], str],
) -> RecoveryRow | None:
    """Return the row of a run that works on without a majority of its voters, as a node in the minority partition sees it.

    None when the run does not.

    Args:
        since: when that node last learned of a commit.
    """
    if (
        value is None
        or value.state is not RunState.RUNNING
        or partition_side_of(value, can_reach) is not PartitionSide.MINORITY
    ):
        return None
    missing = [voter.peer.node for voter in value.voters if not can_reach(voter.peer.node)]
    return RecoveryRow(
        attempt=value.attempt,
        from_epoch=value.committed.epoch,
        reason=f"{len(missing)} of {len(value.voters)} voters of its register are not reached, so nothing is committed; "
        "it works on, and its rows are committed when enough voters are reached again",
        phase=MINORITY,
        waits_for=[name_of(node) for node in missing],
        seconds=round((now - since) / SECOND, 3) if since is not None else 0.0,
        bytes=0,
        total_bytes=0,
        restarts=0,
        remedy=_remedy(value, missing, name_of),
    )


def epoch_row_in_minority(value: RegisterValue, since: Instant | None, now: Instant, known: Iterable[Peer]) -> EpochRow:
    """Return the epoch that a node knows to be committed while it coordinates nothing."""
    return EpochRow(
        committed=value.committed.epoch,
        attempt=value.attempt,
        age_s=None if since is None else round((now - since) / SECOND, 3),
        duration_ms=0.0,
        bytes=sum(snapshot.length for saved in value.saved for snapshot in saved.chain),
        tolerated_losses=tolerated_losses(value, known),
    )


def _remedy(value: RegisterValue, missing: Iterable[NodeId], name_of: Callable[[NodeId], str]) -> str:
    """Return the command that helps when the majority of a run's voters is lost for good."""
    return f"agiledart checkpoint recover {value.run.app} " + " ".join(f"--without {name_of(node)}" for node in missing)


def _distinct_name(node: NodeId, name: str, known: Iterable[Peer]) -> str:
    """Return the name of an awaited node; with its id when another node with a new key has taken that name."""
    return f"{name}-{node.short}" if any(peer.name == name and peer.node != node for peer in known) else name


def tolerated_losses(value: RegisterValue, known: Iterable[Peer]) -> int | None:
    """Return how many machines may be lost at once, whichever they are, without losing state; None without state.

    The content of a snapshot in the register survives the loss of a minority of the voters. Of another one, each owner has
    the whole. Replica nodes on one machine are lost together; those on the owner's machine are lost with it.
    """
    machines = {peer.node: host_of(peer) for peer in known}
    losses: list[int] = []
    for owned in (assignment for assignment in value.plan.assignments if not assignment.is_pinned):
        owner = host_of(owned.host)
        for snapshot in (snapshot for saved in value.saved_for(owned.instance) for snapshot in saved.chain):
            if snapshot.content:
                losses.append(len(value.voters) // 2)
                continue
            replica_nodes = [
                machines.get(replica_node, replica_node.hex) for replica_node in snapshot.replica_nodes if replica_node
            ]
            counts = sorted(
                (replica_nodes.count(machine) for machine in dict.fromkeys(replica_nodes) if machine != owner),
                reverse=True,
            )
            left, lost = sum(counts), 0
            while lost < len(counts) and left - counts[lost] >= snapshot.m:
                left -= counts[lost]
                lost += 1
            losses.append(lost + 1 if left >= snapshot.m else 0)
    return min(losses) if losses else None


def changes_of(coordinator: Coordinator | None) -> list[ChangeRow]:
    """Return the changes of a run that this node coordinates, oldest first; none of any other."""
    if coordinator is None or not coordinator.leads or coordinator.proposer.value is None:
        return []
    return changes_in(coordinator.value)


def changes_in(value: RegisterValue) -> list[ChangeRow]:
    """Return the changes that a value of the register names, oldest first."""
    names = {str(stage.index): stage.name for stage in _PLAN.decode(value.plan.body).stages} if value.plan.body else {}
    return [
        ChangeRow(
            stage=names.get(change.stage, change.stage),
            generation=change.generation,
            before=change.before,
            after=change.after,
            kind=change.kind,
            reason=change.reason,
            state=change.fate.value,
            why=change.why,
            moved_groups=change.moved_groups,
            moved_bytes=change.moved_bytes,
            seconds=round(change.took_ns / SECOND, 3),
            pause_ms=round(change.changeover_pause_ns / MILLISECOND, 3) if change.changeover_pause_ns else None,
            number=change.stage,
        )
        for change in value.changes
    ]


def as_plain(rows: StatusRows) -> tuple[dict[str, object], dict[str, object]]:
    """Return the rows as plain dicts, the form in which they are sent."""
    recovery, epoch = rows
    plain = {} if recovery is None else msgspec.to_builtins(recovery)
    return plain, {} if epoch is None else msgspec.to_builtins(epoch)


def saved_snapshots(value: RegisterValue, name_of: Callable[[NodeId], str]) -> tuple[dict[str, object], ...]:
    """Return the snapshots that the committed epoch or the one before it needs, one row each; `stage` is a number of the plan."""
    hosts = {assignment.instance: name_of(assignment.host.node) for assignment in value.plan.assignments}
    return tuple(
        {
            "stage": instance.stage,
            "index": instance.index,
            "node": hosts.get(instance, ""),
            "epoch": snapshot.checkpoint.epoch,
            "attempt": snapshot.checkpoint.attempt,
            "bytes": snapshot.length,
            "fragments_needed": snapshot.m if any(snapshot.replica_nodes) else 0,
            "replica_nodes": [name_of(replica_node) for replica_node in snapshot.replica_nodes if replica_node],
            "is_in_register": bool(snapshot.content),
        }
        for (instance, _), snapshot in value.needed.items()
    )
