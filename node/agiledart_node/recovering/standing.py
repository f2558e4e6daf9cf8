"""How it stands with a run that survives its hosts, for people: what its coordinator knows, under the names of `status`."""

from collections.abc import Callable, Iterable

import msgspec

from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.bodies import EpochRow, RecoveryRow
from agiledart_recovery.fragments.placement import host_of
from agiledart_recovery.lives.coordinator import Coordinator
from agiledart_recovery.wire.value import Role, State, Value

Rows = tuple[RecoveryRow | None, EpochRow | None]


def standing(
    coordinator: Coordinator | None, now: Instant, known: Iterable[Peer], name_of: Callable[[NodeId], str]
) -> Rows:
    """Of a run that this node coordinates; (None, None) of any other. Without a recovery under way its row is None.

    Args:
        known: peers of which one knows on which host they are.
        name_of: the name of a node, for people.
    """
    if coordinator is None or not coordinator.leads or coordinator.proposer.value is None:
        return None, None
    value, progress = coordinator.value, coordinator.progress
    at = progress.committed_at
    epoch = EpochRow(
        committed=value.committed.epoch,
        life=value.life,
        age_s=None if at is None else round((now - at) / SECOND, 3),
        took_ms=round(progress.epoch_ns / MILLISECOND, 3),
        bytes=sum(element.length for saved in value.saved for element in saved.chain),
        survives=survives(value, known),
        coordinator=name_of(coordinator.node),
    )
    if progress.since is None or value.state is not State.RUNNING:
        return None, epoch
    got, of = progress.bytes()
    recovery = RecoveryRow(
        life=value.life,
        from_epoch=value.committed.epoch,
        reason=progress.reason,
        phase=progress.phase,
        waits_for=[name_of(node) for node in progress.waits_for],
        seconds=round((now - progress.since) / SECOND, 3),
        bytes=got,
        of_bytes=of,
        attempt=progress.attempt,
    )
    return recovery, epoch


def survives(value: Value, known: Iterable[Peer]) -> int | None:
    """How many machines may be lost at once, whichever they are, without a state being lost; None without state.

    Each owner has its element whole. Holders on one machine are lost together, those on the owner's machine with the owner.
    """
    machines = {peer.node: host_of(peer) for peer in known}
    found: list[int] = []
    for mine in value.plan.of(Role.STAGE):
        owner = host_of(mine.host)
        for element in value.saved_of(mine.party).chain:
            holders = [machines.get(holder, holder.hex) for holder in element.holders if holder]
            counts = sorted((holders.count(one) for one in dict.fromkeys(holders) if one != owner), reverse=True)
            left, lost = sum(counts), 0
            while lost < len(counts) and left - counts[lost] >= element.m:
                left -= counts[lost]
                lost += 1
            found.append(lost + 1 if left >= element.m else 0)
    return min(found) if found else None


def as_plain(rows: Rows) -> tuple[dict[str, object], dict[str, object]]:
    """As they travel."""
    recovery, epoch = rows
    plain = {} if recovery is None else msgspec.to_builtins(recovery)
    return plain, {} if epoch is None else msgspec.to_builtins(epoch)
