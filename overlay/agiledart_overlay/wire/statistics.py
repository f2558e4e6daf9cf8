"""Counts of one overlay machine, as an immutable record."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OverlayStatistics:
    """Snapshot of the counts.

    Args:
        joined: whether this node is a member.
        leaves: peers in the leaf set.
        known_peers: peers in any table.
        table_slots: slots of the routing table that are not empty.
        records: records stored here, as root or replica.
        sent, received: messages by class name, sorted by name.
        dropped: dropped messages by reason, sorted by reason.
        rejoins: times that the ring went on without this node.
        aborted_admissions: joiners that answered this node's invitation and did not get in.
    """

    joined: bool
    leaves: int
    known_peers: int
    table_slots: int
    records: int
    sent: tuple[tuple[str, int], ...]
    received: tuple[tuple[str, int], ...]
    dropped: tuple[tuple[str, int], ...]
    rejoins: int = 0
    aborted_admissions: int = 0
