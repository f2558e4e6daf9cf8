"""Response schemas about nodes: their list, one node's own state, and the route to a key."""

from typing import Any

from agiledart_node.wire.lease_responses import HostLeaseRow
from agiledart_node.wire.response import Response


class LatencyPositionRow(Response, frozen=True):
    """Position of a node in the latency space.

    Args:
        ms: three axes.
        height_ms: delay of its own access line, added to any distance.
        error: estimated error, as a share of the distance.
    """

    ms: list[float]
    height_ms: float
    error: float


class NodeIdentityRow(Response, frozen=True):
    """Identity of a node: the first fields of all rows about nodes."""

    name: str
    node_id: str
    incarnation: int
    address: str
    zone: str
    host: str


class NodeRow(NodeIdentityRow, frozen=True):
    """One node. Fields after `answers` are null when it does not answer.

    Args:
        node_id: 32 hex digits.
        incarnation: number of its incarnation.
        address: `host:port` of its links.
        rtt_ms: smoothed round trip from the asked node; null when unknown.
        coordinate: position in the latency space; null when unknown.
        schedules: applications that it serves as scheduler; null: it is no scheduler.
        key: its public key, hex; empty where the asked agent has no link to it.
        clock_s: lead of its clock over most others, seconds (negative: behind); null: not measured.
        software: its version of AgileDart; specification: the form of specifications that it knows; empty and 0: not reported.
        is_draining: it moves its work away, and takes none.
        labels: abilities that its user gave it; cores: that its instances share.
        kind: of the asked node's link to it, `direct` or `relayed`; empty: there is no link. relay: name of the relay.
        outside: host under which nodes of other networks see it; empty: unknown.
        open: nodes of other networks reach it by a dial. held_by: names of the relays that lead to it, as it only dials out.
        speed: of one core, 1 is the reference; busy: share of its machine's processor time in use; free_memory_mb: that its machine
            can still give; null: not measured, or it runs a version that does not report it.
        lease: of its machine; null: no gate has leased it.
    """

    is_this_node: bool
    rtt_ms: float | None
    answers: bool
    coordinate: LatencyPositionRow | None = None
    instances: int | None = None
    capacity: int | None = None
    executors: int | None = None
    applications: list[str] | None = None
    is_leaving: bool | None = None
    schedules: int | None = None
    key: str = ""
    clock_s: float | None = None
    software: str = ""
    specification: int = 0
    is_draining: bool = False
    labels: list[str] = []
    cores: int | None = None
    speed: float | None = None
    busy: float | None = None
    free_memory_mb: int | None = None
    kind: str = ""
    relay: str = ""
    outside: str = ""
    open: bool = False
    held_by: list[str] = []
    lease: HostLeaseRow | None = None


class NodesResponse(Response, frozen=True):
    """Response to `nodes`: the asked node and the nodes that it knows (at most 256 rows).

    Args:
        known: number of known nodes.
        refused: number of connections that the asked agent refused, by reason; the agent adds it.
        isolation_warning: warning when the asked node reaches no other node, and should; the agent adds it.
        clocks: wrong clocks, each in words: `clock of a2 is 3,600 s behind`.
        network: these nodes as a document `agiledart-network/1`; null unless requested.
        notes: remarks about figures that `network` lacks.
    """

    nodes: list[NodeRow]
    known: int
    refused: dict[str, int] = {}
    isolation_warning: str = ""
    clocks: list[str] = []
    network: dict[str, Any] | None = None
    notes: list[str] = []


class HopRow(NodeIdentityRow, frozen=True):
    """One node on a route."""

    rtt_from_here_ms: float | None


class RouteResponse(Response, frozen=True):
    """Response to `route`: the asked node first, the root of the key last.

    Args:
        round_trip_ms: duration of the probe's route and the direct answer.
    """

    key: str
    hops: int
    path: list[HopRow]
    round_trip_ms: float


class InfoResponse(NodeIdentityRow, frozen=True, forbid_unknown_fields=False):
    """Response to `info`: the node's own state. The agent adds fields of its own.

    Args:
        overlay: counts of the ring protocol.
        ignored_messages: messages that the node ignored, by reason.
    """

    joined: bool
    is_leaving: bool
    is_draining: bool
    known_nodes: int
    instances: int
    capacity: int
    executors: int
    applications: list[str]
    overlay: dict[str, Any]
    ignored_messages: dict[str, int]
