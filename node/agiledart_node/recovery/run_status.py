"""How it stands with a run that survives its hosts, for people: what its coordinator knows, under the names of `status`."""

from collections.abc import Callable, Iterable

import msgspec

from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.records.application import MINORITY
from agiledart_node.wire.change_responses import ChangeRow
from agiledart_node.wire.responses import EpochRow, RecoveryRow
from agiledart_recovery.attempts.coordinator import Coordinator
from agiledart_recovery.attempts.partition_side import PartitionSide, partition_side_of
from agiledart_recovery.fragments.placement import host_of
from agiledart_recovery.wire.register_value import RegisterValue, RunState

_PLAN: Codec[StagePlan] = Codec(StagePlan)

StatusRows = tuple[RecoveryRow | None, EpochRow | None]


def run_status(
    coordinator: Coordinator | None, now: Instant, known: Iterable[Peer], name_of: Callable[[NodeId], str]
) -> StatusRows:
    """Of a run that this node coordinates; (None, None) of any other. Without a recovery under way its row is None.

    Args:
        known: peers of which one knows on which host they are.
        name_of: the name of a node, for people.
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


def minority_status(
    value: RegisterValue | None,
    since: Instant | None,
    now: Instant,
    can_reach: Callable[[NodeId], bool],
    name_of: Callable[[NodeId], str],
) -> RecoveryRow | None:
    """Of a run that works on without the majority of its voters, as a node on that side of a cut sees it; else None.

    Args:
        since: when that node last heard of a commit.
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
        "it works on, and its rows come when they are reached again",
        phase=MINORITY,
        waits_for=[name_of(node) for node in missing],
        seconds=round((now - since) / SECOND, 3) if since is not None else 0.0,
        bytes=0,
        total_bytes=0,
        restarts=0,
        remedy=_remedy(value, missing, name_of),
    )


def epoch_row_in_minority(value: RegisterValue, since: Instant | None, now: Instant, known: Iterable[Peer]) -> EpochRow:
    """What a node that coordinates nothing knows to be safe."""
    return EpochRow(
        committed=value.committed.epoch,
        attempt=value.attempt,
        age_s=None if since is None else round((now - since) / SECOND, 3),
        duration_ms=0.0,
        bytes=sum(snapshot.length for saved in value.saved for snapshot in saved.chain),
        tolerated_losses=tolerated_losses(value, known),
    )


def _remedy(value: RegisterValue, missing: Iterable[NodeId], name_of: Callable[[NodeId], str]) -> str:
    """What to do where the majority of a run's voters is gone for ever."""
    return f"agiledart checkpoint recover {value.run.app} " + " ".join(f"--without {name_of(node)}" for node in missing)


def _distinct_name(node: NodeId, name: str, known: Iterable[Peer]) -> str:
    """The name of who is waited for; with its id where another node of that name is there, for it has taken another key."""
    return f"{name}-{node.short}" if any(one.name == name and one.node != node for one in known) else name


def tolerated_losses(value: RegisterValue, known: Iterable[Peer]) -> int | None:
    """How many machines may be lost at once, whichever they are, without a state being lost; None without state.

    Each owner has its element whole. Holders on one machine are lost together, those on the owner's machine with the owner.
    """
    machines = {peer.node: host_of(peer) for peer in known}
    found: list[int] = []
    for mine in (each for each in value.plan.assignments if not each.is_pinned):
        owner = host_of(mine.host)
        for snapshot in (snapshot for saved in value.saved_for(mine.instance) for snapshot in saved.chain):
            replica_nodes = [
                machines.get(replica_node, replica_node.hex) for replica_node in snapshot.replica_nodes if replica_node
            ]
            counts = sorted(
                (replica_nodes.count(one) for one in dict.fromkeys(replica_nodes) if one != owner), reverse=True
            )
            left, lost = sum(counts), 0
            while lost < len(counts) and left - counts[lost] >= snapshot.m:
                left -= counts[lost]
                lost += 1
            found.append(lost + 1 if left >= snapshot.m else 0)
    return min(found) if found else None


def changes_of(coordinator: Coordinator | None) -> list[ChangeRow]:
    """Changes of a run that this node coordinates, oldest first; none of any other."""
    if coordinator is None or not coordinator.leads or coordinator.proposer.value is None:
        return []
    return changes_in(coordinator.value)


def changes_in(value: RegisterValue) -> list[ChangeRow]:
    """Changes that a value of the register names, oldest first."""
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
    """As they travel."""
    recovery, epoch = rows
    plain = {} if recovery is None else msgspec.to_builtins(recovery)
    return plain, {} if epoch is None else msgspec.to_builtins(epoch)


def saved_snapshots(value: RegisterValue, name_of: Callable[[NodeId], str]) -> tuple[dict[str, object], ...]:
    """What each instance saved that the committed epoch or the one before it needs; `stage` is a number of the plan."""
    hosts = {each.instance: name_of(each.host.node) for each in value.plan.assignments}
    return tuple(
        {
            "stage": instance.stage,
            "index": instance.index,
            "node": hosts.get(instance, ""),
            "epoch": snapshot.checkpoint.epoch,
            "life": snapshot.checkpoint.attempt,
            "bytes": snapshot.length,
            "needs": snapshot.m if any(snapshot.replica_nodes) else 0,
            "holders": [name_of(replica_node) for replica_node in snapshot.replica_nodes if replica_node],
        }
        for (instance, _), snapshot in value.needed.items()
    )
