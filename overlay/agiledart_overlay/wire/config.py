"""Figures of the overlay, each with its unit, its range and the effect of a change.

Presets: `lan` (default), `wan`, `paper` (the figures of the ordinary Pastry implementation), `simulation` (quiet when idle).
"""

from dataclasses import dataclass, replace
from typing import Any

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import DIGIT_BITS, ID_BITS


def _leases(renewal_ns: int) -> dict[str, Any]:
    """Return leases, and all figures counted in rounds, for one length of a round."""
    return {
        "lease_renewal_ns": renewal_ns,
        "lease_ns": 4 * renewal_ns,
        "dead_after_ns": 6 * renewal_ns,
        "merge_after_ns": 12 * renewal_ns,
        "probe_interval_ns": renewal_ns,
    }


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
    """Size of the leaf set, even; half on each side. The ring survives if fewer than half of it die at once on one side."""
    neighbour_count: int = 32
    """Size of the neighbourhood set."""
    slot_candidates: int = 3
    """Nodes kept in one slot of the routing table, cheapest first."""
    replicas: int = 4
    """Nearest leaves that hold a record beside its root; 1 or more."""

    lease_renewal_ns: int = 500 * MILLISECOND
    """Time between rounds, in which leases of both ring neighbours are renewed. Longer: less traffic, later detection."""
    lease_ns: int = 2 * SECOND
    """Time for which a ring neighbour may deliver without a renewal; 4 rounds. Longer: a crash leaves keys unowned longer."""
    dead_after_ns: int = 3 * SECOND
    """Silence after which a ring neighbour counts as dead; 6 rounds, longer than a lease."""
    lease_margin_permille: int = 10
    """Share by which the holder of a lease counts it shorter, so the clock speeds of two nodes may differ by as much. 1 to 200."""
    probe_interval_ns: int = 500 * MILLISECOND
    """Time between probes of one more leaf; a whole number of rounds."""
    probe_timeout_ns: int = 200 * MILLISECOND
    """Least time to wait for an answer; the wait is max(this, 4 RTT)."""
    indirect_probes: int = 3
    """Leaves asked to probe a silent peer."""
    suspicion_min_ns: int = 1 * SECOND
    """Time a suspect has to refute when enough other nodes confirm."""
    suspicion_max_ns: int = 2 * SECOND
    """The same when no node confirms."""
    refused_ns: int = 200 * MILLISECOND
    """The same when its machine has refused two connections, and one to a confirming node. At most `suspicion_min_ns`."""
    tombstone_ns: int = 900 * SECOND
    """Time that a declared failure is remembered, so that outdated gossip cannot undo it."""
    late_ns: int = 100 * MILLISECOND
    """An own timer later than this means that this node is slow: it waits longer before it accuses."""
    paused_ns: int = 500 * MILLISECOND
    """An own timer later than this means that this node was asleep: it starts all unfinished checks anew."""

    leaf_exchange_ns: int = 2 * SECOND
    """Time between leaf-set exchanges with one random leaf."""
    table_exchange_ns: int = 60 * SECOND
    """Time between exchanges of every row with a random member of it, and of the neighbourhood set with one of its members."""
    heal_interval_ns: int = 5 * SECOND
    """Time between attempts to reach a lost peer or an unknown seed, so that two halves of a ring find each other."""

    hop_weight: float = 0.1
    """Cost of one hop of the network, in median round trips; w_h. All four weights 0: Pastry's own choice by round trip."""
    congestion_weight: float = 1.0
    """Cost of a link that is used in full; w_c."""
    zone_weight: float = 0.25
    """Cost of leaving the zone; w_z."""
    load_weight: float = 0.5
    """Cost of a peer whose capacity is used in full; w_p."""

    bootstrap_rounds: int = 2
    """Times that a joiner looks for a nearer seed among the leaves of the nearest so far; each takes about two round trips."""
    bootstrap_probes: int = 8
    """Leaves probed in each of these rounds."""
    arrival_contacts: int = 192
    """Peers beyond its leaves that a new member contacts for its table and neighbourhood: at most this many times two messages."""
    arrival_candidates: int = 3
    """Peers contacted for one slot of the table, the cheapest by coordinates first; at most `slot_candidates` are kept."""
    arrival_neighbours: int = 32
    """Peers contacted for the neighbourhood set, the nearest by coordinates first."""
    second_stage_questions: int = 8
    """Rows and neighbourhood sets that a new member requests; 0: no second stage."""
    gossip_contacts: int = 16
    """Peers contacted because one message reported them, for empty slots or entries that would be dearer."""

    join_retry_ns: int = 500 * MILLISECOND
    """Time after which a joiner asks again."""
    join_timeout_ns: int = 30 * SECOND
    """Time after which a joiner gives up."""
    admission_ns: int = 2 * SECOND
    """Time within which an invited joiner must be in; until then no node takes its keys back. At most a lease."""
    handshake_retry_ns: int = 250 * MILLISECOND
    """Time after which a message of an admission or of a successor's replacement is repeated."""
    queue_timeout_ns: int = 4 * SECOND
    """Time for which a queued joiner does not ask again."""
    merge_after_ns: int = 6 * SECOND
    """Time after which a member met inside an agreed key range counts as one of another ring; two `dead_after`."""
    join_queue: int = 64
    """Joiners that wait at one range owner; further ones must try again."""
    leave_timeout_ns: int = 2 * SECOND
    """Longest time that leaving may take."""

    hop_timeout_ns: int = 50 * MILLISECOND
    """Least time to wait for a hop's acknowledgement; the wait is max(this, srtt + 4 var)."""
    max_waiting: int = 32
    """Messages that wait at one node for a key without an owner at the moment; senders repeat further ones."""
    max_hops_pending: int = 4_096
    """Routed messages that wait for an acknowledgement here; more are dropped and counted."""

    record_retry_ns: int = 500 * MILLISECOND
    """Time after which a client or a root repeats a request about a record."""
    record_timeout_ns: int = 8 * SECOND
    """Time after which a request about a record is answered `timeout`."""
    max_requests_pending: int = 1_024
    """Requests about records that one node has pending, as client and as root; more are answered `overloaded`."""
    max_stored_bytes: int = 64 << 20
    """Bytes of record values that one node keeps; at the limit, or at its writer's share, it refuses new ones."""
    max_watched: int = 512
    """Peers watched beside the leaves."""

    heartbeat_interval_ns: int = 2 * SECOND
    """Time between the heartbeats of a parent in a topic's tree to its children, while there are any."""
    heartbeat_misses: int = 3
    """Heartbeats that may be missed before a child looks for another parent, and a parent drops a child."""
    max_children: int = 16
    """Children of one node in all trees; one more is given to a sibling."""
    root_replicas: int = 5
    """Nearest leaves that hold a copy of a topic's state at its root."""

    @classmethod
    def lan(cls) -> "OverlayConfig":
        """Return the preset for one site: a silent node is declared dead in 3 s or less (p95)."""
        return cls()

    @classmethod
    def wan(cls) -> "OverlayConfig":
        """Return the preset for several sites: the same with 2 s between rounds and 5 s at most to refute."""
        return replace(
            cls(),
            **_leases(2 * SECOND),
            probe_timeout_ns=500 * MILLISECOND,
            suspicion_min_ns=2_500 * MILLISECOND,
            suspicion_max_ns=5 * SECOND,
            refused_ns=500 * MILLISECOND,
            leaf_exchange_ns=5 * SECOND,
            admission_ns=4 * SECOND,
            handshake_retry_ns=500 * MILLISECOND,
            hop_timeout_ns=200 * MILLISECOND,
            join_retry_ns=1 * SECOND,
            record_retry_ns=1 * SECOND,
            record_timeout_ns=20 * SECOND,
            leave_timeout_ns=5 * SECOND,
            bootstrap_rounds=5,
        )

    @classmethod
    def paper(cls) -> "OverlayConfig":
        """Return the ordinary Pastry figures: heartbeats of 5 s, three silent ones before a peer is suspected."""
        return replace(
            cls(),
            **_leases(5 * SECOND),
            suspicion_min_ns=10 * SECOND,
            suspicion_max_ns=15 * SECOND,
            refused_ns=10 * SECOND,
            leaf_exchange_ns=10 * SECOND,
            table_exchange_ns=900 * SECOND,
            bootstrap_rounds=5,
            bootstrap_probes=24,
        )

    @classmethod
    def simulation(cls, nodes: int) -> "OverlayConfig":
        """Return `lan` with rounds stretched with the number of nodes, so that an idle ring stays below 2 events a node and
        second.
        """
        stretch = max(1, min(nodes // 100, 16))
        return replace(
            cls(),
            **_leases(500 * stretch * MILLISECOND),
            leaf_exchange_ns=2 * stretch * SECOND,
            heal_interval_ns=5 * stretch * SECOND,
            table_exchange_ns=60 * stretch * SECOND,
            heartbeat_interval_ns=2 * stretch * SECOND,
            bootstrap_rounds=0,
            arrival_contacts=48,
            arrival_candidates=1,
            arrival_neighbours=8,
            second_stage_questions=4,
            gossip_contacts=4,
        )

    def validate(self) -> None:
        """Raise ConfigurationError when a field, or the relation of two, is invalid."""
        if self.leaf_count < 2 or self.leaf_count % 2:
            raise ConfigurationError(f"leaf_count = {self.leaf_count}: must be even and at least 2")
        if self.id_bits % self.digit_bits:
            raise ConfigurationError(f"id_bits = {self.id_bits}: must be a multiple of digit_bits = {self.digit_bits}")
        if not 1 <= self.replicas <= self.leaf_count:
            raise ConfigurationError(f"replicas = {self.replicas}: must be 1 to leaf_count = {self.leaf_count}")
        if min(self.hop_weight, self.congestion_weight, self.zone_weight, self.load_weight) < 0:
            raise ConfigurationError("the weights of a hop's cost must not be negative")
        if self.arrival_candidates > self.slot_candidates:
            raise ConfigurationError("arrival_candidates must not exceed slot_candidates")
        if self.probe_timeout_ns >= self.probe_interval_ns:
            raise ConfigurationError("probe_timeout_ns must be below probe_interval_ns")
        if self.lease_renewal_ns <= 0 or self.probe_interval_ns % self.lease_renewal_ns:
            raise ConfigurationError("probe_interval_ns must be a multiple of lease_renewal_ns")
        if not 2 * self.lease_renewal_ns < self.lease_ns < self.dead_after_ns:
            raise ConfigurationError("lease_ns must be more than two lease_renewal_ns and less than dead_after_ns")
        if not 4 * self.handshake_retry_ns <= self.admission_ns <= self.lease_ns:
            raise ConfigurationError("admission_ns must be at least four handshake_retry_ns and at most lease_ns")
        if not 1 <= self.lease_margin_permille <= 200:
            raise ConfigurationError(f"lease_margin_permille = {self.lease_margin_permille}: must be 1 to 200")
        if self.merge_after_ns < self.dead_after_ns:
            raise ConfigurationError("merge_after_ns must be at least dead_after_ns")
        if not self.refused_ns <= self.suspicion_min_ns <= self.suspicion_max_ns:
            raise ConfigurationError("refused_ns must not exceed suspicion_min_ns, nor that suspicion_max_ns")
        if self.record_retry_ns >= self.record_timeout_ns or self.join_retry_ns >= self.join_timeout_ns:
            raise ConfigurationError("a retry must come before its timeout")
