"""Read-only view of one overlay machine, for the node above it, tests and checkers."""

from collections.abc import Container

from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.records.record_directory import RecordDirectory
from agiledart_overlay.records.record_store import Record
from agiledart_overlay.routing.router import Router
from agiledart_overlay.state.view import View
from agiledart_overlay.tables.arc import Arc
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.neighbourhood import Neighbourhood
from agiledart_overlay.tables.routing_table import RoutingTable
from agiledart_overlay.wire.statistics import OverlayStatistics


class Inspection:
    """Read-only side of an overlay machine."""

    __slots__ = ("_directory", "_received", "_router", "_view")

    def __init__(self, view: View, router: Router, directory: RecordDirectory) -> None:
        self._view, self._router, self._directory = view, router, directory
        self._received: dict[type, int] = {}

    @property
    def me(self) -> Peer:
        """Return this node."""
        return self._view.me

    @property
    def joined(self) -> bool:
        """Report whether this node is a member."""
        return self._view.joined

    def claim(self, now: Instant) -> Arc | None:
        """Return the keys that this node would deliver now, by its own clock; None when it delivers none."""
        return self._view.agreed.claim(now)

    @property
    def claim_ends(self) -> int:
        """Return the instant of this node's clock at which the claim ends, unless a lease is renewed before."""
        return self._view.agreed.lease

    @property
    def agreed_neighbours(self) -> tuple[Peer | None, Peer | None]:
        """Return the agreed predecessor and successor; this node itself in a ring of one."""
        agreed = self._view.agreed
        return agreed.predecessor.peer, agreed.successor.peer

    @property
    def is_stable(self) -> bool:
        """Report whether the node is in the ring, with no change pending between it and its neighbours."""
        agreed = self._view.agreed
        return agreed.confirmed and not agreed.is_pending

    @property
    def leaf_set(self) -> LeafSet:
        """Return the nearest members in id; read only."""
        return self._view.leaf_set

    @property
    def routing_table(self) -> RoutingTable:
        """Return the routing table; read only."""
        return self._view.routing_table

    @property
    def neighbourhood(self) -> Neighbourhood:
        """Return the nearest peers in latency; read only."""
        return self._view.neighbourhood

    @property
    def watched(self) -> tuple[NodeId, ...]:
        """Return peers that are probed because the node above asked for news of their death."""
        return tuple(self._view.watched)

    @property
    def hops_pending(self) -> int:
        """Return the number of routed messages that the next node has not acknowledged yet."""
        return self._router.pending

    @property
    def records(self) -> tuple[Record, ...]:
        """Return the copies of records stored here."""
        return tuple(self._directory.copies)

    def known_peers(self) -> tuple[Peer, ...]:
        """Return the peers of all tables that count as alive, sorted by id, without this node."""
        return tuple(sorted(self._view.known(), key=lambda peer: peer.node))

    def is_alive(self, node: NodeId) -> bool:
        """Report whether a node is known and not declared dead; true for this node."""
        return node == self._view.me.node or node in self._view.book

    def next_hop(self, key: NodeId, avoid: Container[NodeId] = ()) -> Peer | None:
        """Return the next node for this key, passing over silent ones; None: this node is the closest."""
        return self._view.next_hop(key, avoid).peer

    def rtt_ns(self, node: NodeId) -> Duration | None:
        """Return the smoothed round-trip time to a peer; None when it was never measured."""
        known = self._view.book.get(node)
        return Duration(known.rtt_ns) if known is not None and known.rtt_ns else None

    @property
    def coordinate(self) -> Coordinate:
        """Return this node's place in the space of latencies, with its error."""
        return self._view.distances.vitals.coordinate

    def coordinate_of(self, node: NodeId) -> Coordinate | None:
        """Return a peer's own report of its place; None when it is unknown."""
        known = self._view.book.get(node)
        return known.vitals.coordinate if known is not None and known.vitals is not None else None

    def statistics(self) -> OverlayStatistics:
        """Return the counts so far."""
        view = self._view
        return OverlayStatistics(
            joined=view.joined,
            leaves=len(view.leaf_set),
            known_peers=len(view.known()),
            table_slots=view.routing_table.slots,
            records=len(self._directory.copies),
            sent=_by_name(view.sent),
            received=_by_name(self._received),
            dropped=tuple(sorted(view.dropped.items())),
            rejoins=view.agreed.rejoined,
            aborted_admissions=view.agreed.aborted,
        )


def _by_name(counts: dict[type, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((kind.__name__, count) for kind, count in counts.items()))
