"""Every figure of the overlay, with its unit, range and what moves when it is turned.

Presets: `lan` (default), `wan`, `paper` (the figures of the ordinary Pastry implementation), `simulation` (quiet when idle).
"""

from dataclasses import dataclass, replace

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import DIGIT_BITS, ID_BITS


@dataclass(frozen=True, slots=True)
class OverlayConfig:
    """Settings of one overlay machine; all nodes of a ring must agree on the first three.

    Durations are nanoseconds.
    """

    id_bits: int = ID_BITS
    """Length of an id; small only in tests."""
    digit_bits: int = DIGIT_BITS
    """Bits per digit (Pastry's b); larger: fewer hops, larger tables."""
    leaf_count: int = 24
    """Size of the leaf set, even; half on each side. Fewer than half of it may die at once on one side."""
    neighbour_count: int = 32
    """Size of the neighbourhood set."""
    slot_candidates: int = 3
    """Nodes kept in one slot of the routing table, cheapest first."""
    replicas: int = 4
    """Nearest leaves that hold a record beside its root; 1 or more."""

    probe_interval_ns: int = 500 * MILLISECOND
    """Time between rounds: both ring neighbours and one more leaf. Longer: less traffic, later detection."""
    probe_timeout_ns: int = 200 * MILLISECOND
    """Least time to wait for an answer; the wait is max(this, 4 RTT)."""
    indirect_probes: int = 3
    """Leaves asked to try a silent peer."""
    suspicion_min_ns: int = 1 * SECOND
    """Time a suspect has to refute when enough others confirm."""
    suspicion_max_ns: int = 2 * SECOND
    """The same when nobody confirms."""
    grave_ns: int = 900 * SECOND
    """How long a declared failure is remembered, so that stale gossip cannot undo it."""
    late_ns: int = 100 * MILLISECOND
    """An own timer later than this means that this node is slow: it waits longer before it accuses."""
    paused_ns: int = 500 * MILLISECOND
    """An own timer later than this means that this node was asleep: it starts all unfinished checks anew."""

    leaf_exchange_ns: int = 2 * SECOND
    """Time between leaf-set exchanges with one random leaf."""
    table_exchange_ns: int = 60 * SECOND
    """Time between row exchanges with a random member of a random row."""
    heal_interval_ns: int = 5 * SECOND
    """Time between attempts to reach a lost peer or an unknown seed, so that two halves of a ring find each other."""

    join_retry_ns: int = 500 * MILLISECOND
    """Time after which a joiner asks again."""
    join_timeout_ns: int = 30 * SECOND
    """Time after which a joiner gives up."""
    admission_ns: int = 1 * SECOND
    """Time for which one admitted joiner keeps the next one waiting."""
    join_queue: int = 64
    """Joiners that wait at one guardian; more are told to try again."""
    leave_timeout_ns: int = 2 * SECOND
    """Longest time that leaving may take."""

    hop_timeout_ns: int = 50 * MILLISECOND
    """Least time to wait for a hop's acknowledgement; the wait is max(this, srtt + 4 var)."""
    max_hops_pending: int = 4_096
    """Routed messages that wait for an acknowledgement here; more are dropped and counted."""

    record_retry_ns: int = 500 * MILLISECOND
    """Time after which a client or a root repeats a request about a record."""
    record_timeout_ns: int = 8 * SECOND
    """Time after which a request about a record is answered `timeout`."""
    max_requests_pending: int = 1_024
    """Requests about records that one node has under way, as client and as root; more are answered `overloaded`."""
    max_stored_bytes: int = 256 << 20
    """Bytes of record values that one node keeps; at the limit it refuses new ones."""
    max_watched: int = 512
    """Peers watched beside the leaves."""

    @classmethod
    def lan(cls) -> "OverlayConfig":
        """One site: a silent node is declared dead in 3 s or less (p95)."""
        return cls()

    @classmethod
    def wan(cls) -> "OverlayConfig":
        """Several sites: the same with 2 s between rounds and 5 s at most to refute."""
        return replace(
            cls(),
            probe_interval_ns=2 * SECOND,
            probe_timeout_ns=500 * MILLISECOND,
            suspicion_min_ns=2_500 * MILLISECOND,
            suspicion_max_ns=5 * SECOND,
            leaf_exchange_ns=5 * SECOND,
            admission_ns=3 * SECOND,
            hop_timeout_ns=200 * MILLISECOND,
            join_retry_ns=1 * SECOND,
            record_retry_ns=1 * SECOND,
            record_timeout_ns=20 * SECOND,
            leave_timeout_ns=5 * SECOND,
        )

    @classmethod
    def paper(cls) -> "OverlayConfig":
        """The ordinary Pastry figures: heartbeats of 5 s, three silent ones before a peer is suspected."""
        return replace(
            cls(),
            probe_interval_ns=5 * SECOND,
            suspicion_min_ns=10 * SECOND,
            suspicion_max_ns=15 * SECOND,
            leaf_exchange_ns=10 * SECOND,
        )

    @classmethod
    def simulation(cls, nodes: int) -> "OverlayConfig":
        """`lan` with rounds stretched with the number of nodes, so that an idle ring stays below 2 events a node and second."""
        stretch = max(1, min(nodes // 100, 16))
        return replace(
            cls(),
            probe_interval_ns=500 * stretch * MILLISECOND,
            leaf_exchange_ns=2 * stretch * SECOND,
            heal_interval_ns=5 * stretch * SECOND,
        )

    def validate(self) -> None:
        """Raises ConfigurationError when a field, or the relation of two, makes no sense."""
        if self.leaf_count < 2 or self.leaf_count % 2:
            raise ConfigurationError(f"leaf_count = {self.leaf_count}: must be even and at least 2")
        if self.id_bits % self.digit_bits:
            raise ConfigurationError(f"id_bits = {self.id_bits}: must be a multiple of digit_bits = {self.digit_bits}")
        if not 1 <= self.replicas <= self.leaf_count:
            raise ConfigurationError(f"replicas = {self.replicas}: must be 1 to leaf_count = {self.leaf_count}")
        if self.probe_timeout_ns >= self.probe_interval_ns:
            raise ConfigurationError("probe_timeout_ns must be below probe_interval_ns")
        if self.suspicion_min_ns > self.suspicion_max_ns:
            raise ConfigurationError("suspicion_min_ns must not exceed suspicion_max_ns")
        if self.record_retry_ns >= self.record_timeout_ns or self.join_retry_ns >= self.join_timeout_ns:
            raise ConfigurationError("a retry must come before its timeout")
