"""What can be seen of one overlay machine from outside, by the node above it, tests and checkers. Nothing changes anything."""

from collections.abc import Container

from agiledart_kernel.instants import Duration, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.records.record_directory import RecordDirectory
from agiledart_overlay.records.record_store import Record
from agiledart_overlay.routing.router import Router
from agiledart_overlay.state.view import View
from agiledart_overlay.tables.arc import Arc
from agiledart_overlay.tables.coordinates import Coordinate
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.neighbourhood import Neighbourhood
from agiledart_overlay.tables.routing_table import RoutingTable
from agiledart_overlay.wire.statistics import OverlayStatistics


class Inspection:
    """The read-only side of an overlay machine."""

    __slots__ = ("_directory", "_received", "_router", "_view")

    def __init__(self, view: View, router: Router, directory: RecordDirectory) -> None:
        self._view, self._router, self._directory = view, router, directory
        self._received: dict[type, int] = {}

    @property
    def me(self) -> Peer:
        """This node."""
        return self._view.me

    @property
    def joined(self) -> bool:
        """Whether this node is a member."""
        return self._view.joined

    def claim(self, now: Instant) -> Arc | None:
        """The keys that this node would deliver now, by its own clock; None: it answers for nothing."""
        return self._view.agreed.claim(now)

    @property
    def claim_ends(self) -> int:
        """The instant of this node's clock at which the claim ends by itself, unless a lease is renewed before."""
        return self._view.agreed.lease

    @property
    def agreed_neighbours(self) -> tuple[Peer | None, Peer | None]:
        """Agreed predecessor and successor; this node itself in a ring of one."""
        agreed = self._view.agreed
        return agreed.predecessor.peer, agreed.successor.peer

    @property
    def is_stable(self) -> bool:
        """Whether it is in the ring and nothing is under way between it and its neighbours."""
        agreed = self._view.agreed
        return agreed.confirmed and not agreed.is_pending

    @property
    def leaf_set(self) -> LeafSet:
        """The nearest members in id. Read only."""
        return self._view.leaf_set

    @property
    def routing_table(self) -> RoutingTable:
        """The routing table. Read only."""
        return self._view.routing_table

    @property
    def neighbourhood(self) -> Neighbourhood:
        """The nearest peers in latency. Read only."""
        return self._view.neighbourhood

    @property
    def watched(self) -> tuple[NodeId, ...]:
        """Peers that are probed because the node above wants to know of their death."""
        return tuple(self._view.watched)

    @property
    def hops_pending(self) -> int:
        """Routed messages that this node took over and that the next one has not acknowledged yet."""
        return self._router.pending

    @property
    def records(self) -> tuple[Record, ...]:
        """Copies of records kept here."""
        return tuple(self._directory.copies)

    def known_peers(self) -> tuple[Peer, ...]:
        """Peers in any table that are held for alive, sorted by id, without this node."""
        return tuple(sorted(self._view.known(), key=lambda peer: peer.node))

    def is_alive(self, node: NodeId) -> bool:
        """Whether a node is known and not declared dead; true for this node."""
        return node == self._view.me.node or node in self._view.book

    def next_hop(self, key: NodeId, avoid: Container[NodeId] = ()) -> Peer | None:
        """Where a message for this key goes from here, if not to those that stayed silent; None: this node is the closest."""
        return self._view.next_hop(key, avoid).peer

    def rtt_ns(self, node: NodeId) -> Duration | None:
        """Smoothed round-trip time to a peer; None when it was never measured."""
        known = self._view.book.get(node)
        return Duration(known.rtt_ns) if known is not None and known.rtt_ns else None

    @property
    def coordinate(self) -> Coordinate:
        """Where this node lies in the space of latencies, and how sure it is of that."""
        return self._view.distances.vitals.coordinate

    def coordinate_of(self, node: NodeId) -> Coordinate | None:
        """Where a peer said it lies; None when it is not known."""
        known = self._view.book.get(node)
        return known.vitals.coordinate if known is not None and known.vitals is not None else None

    def statistics(self) -> OverlayStatistics:
        """Counts so far."""
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
