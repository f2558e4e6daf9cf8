"""Routes of rows from an instance to others, as `status` reports them and `explain route` shows them."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

_Name = Annotated[str, msgspec.Meta(max_length=256)]
_Number = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]

MAX_ROUTES = 16


class CircuitRow(msgspec.Struct, frozen=True, gc=False):
    """An open circuit.

    Attributes:
        relay: the relaying node; empty: direct.
        in_use: it carries the rows.
        cost_ms: lowest plausible cost of an answer; 2.5e9 where the circuit is the last resort.
        round_trip_ms: of its probes, smoothed; success: answers per slot of 5 ms with an outstanding probe.
        answers: since the circuit was opened or took over; late: an answer is overdue.
        bytes_per_second: throughput.
        use: share of the last seconds in which bytes waited for the link, though the process at its end read.
        waiting_bytes: bytes that wait for it.
    """

    relay: _Name
    in_use: bool
    cost_ms: _Number
    round_trip_ms: _Number
    success: Annotated[float, msgspec.Meta(ge=0, le=1)]
    answers: _Count
    bytes_per_second: _Count
    late: bool
    use: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    waiting_bytes: _Count = 0


class RouteChangeRow(msgspec.Struct, frozen=True, gc=False, rename={"before": "from", "after": "to"}):
    """A switch of rows from one path to another: names of the relaying nodes, empty: direct."""

    at_ms: _Count
    before: _Name
    after: _Name
    reason: _Name


class NextHopRow(msgspec.Struct, frozen=True, gc=False):
    """A neighbour of the sending node as the next hop, by Algorithm 1.

    Attributes:
        to: the neighbour; is_relay: false: it is the target itself.
        omega: least plausible cost of the link in slots of 5 ms; attempts: slots on record, as they count now.
        to_go: cost to go from the neighbour, as it announced; null: it knows no path.
        reason: `chosen`, or why not: `dearer`, `visited`, `not allowed`, `no path` or `no link`.
        relays: further relays of the last circuit through it.
    """

    to: _Name
    is_relay: bool
    omega: _Number | None
    attempts: _Number
    to_go: _Number | None
    reason: _Name
    relays: Annotated[list[_Name], msgspec.Meta(max_length=4)] = msgspec.field(default_factory=list)


class RouteRow(msgspec.Struct, frozen=True, gc=False):
    """The route of one channel to another executor.

    Attributes:
        edge, target: of the plan, and the instance there; to: name of its node.
        paths: permitted kinds of paths.
        relay: the relaying node now, empty: direct; since_ms: time of the last switch.
        state: `works`, `doubted`, `silent` or `down`.
        circuits: open circuits; changes: the last switches; moves: number of switches by reason.
        frames: counts by `direct`, `relayed` and `local`.
        hops: next hops as the node's agent has them, the cheapest first; empty where it was not asked.
        kind: `direct`, `relayed`, or `local`: a socket pair within the node.
    """

    edge: _Count
    target: _Count
    to: _Name
    paths: _Name
    relay: _Name
    since_ms: _Count
    state: _Name
    circuits: Annotated[list[CircuitRow], msgspec.Meta(max_length=16)]
    changes: Annotated[list[RouteChangeRow], msgspec.Meta(max_length=16)]
    moves: Annotated[dict[_Name, _Count], msgspec.Meta(max_length=16)]
    frames: Annotated[dict[_Name, _Count], msgspec.Meta(max_length=4)]
    hops: Annotated[list[NextHopRow], msgspec.Meta(max_length=16)] = msgspec.field(default_factory=list)
    kind: _Name = "direct"


def routes_of(report: Mapping[str, Any]) -> list[RouteRow]:
    """Return the routes in an executor's report; malformed ones are skipped."""
    reported = report.get("routes")
    rows = []
    for route in reported[:MAX_ROUTES] if isinstance(reported, list) else []:
        try:
            rows.append(msgspec.convert(route, RouteRow))
        except msgspec.ValidationError:
            continue
    return rows
