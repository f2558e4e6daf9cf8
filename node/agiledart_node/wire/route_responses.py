"""Which way rows take from an instance to others, as `status` tells it and `explain route` shows it."""

from typing import Annotated, Any

import msgspec

_Name = Annotated[str, msgspec.Meta(max_length=256)]
_Number = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]

MAX_ROUTES = 16


class CircuitRow(msgspec.Struct, frozen=True, gc=False):
    """An open circuit.

    Attributes:
        relay: the node that leads; empty: directly.
        in_use: it carries the rows.
        cost_ms: what an answer costs, at the least that is still plausible; 2.5e9 where it is the last resort.
        round_trip_ms: of its probes, smoothed; success: answers for each slot of 5 ms for which a probe was out.
        answers: since it was opened, or took over; late: an answer is overdue.
        bytes_per_second: that it carries.
    """

    relay: _Name
    in_use: bool
    cost_ms: _Number
    round_trip_ms: _Number
    success: Annotated[float, msgspec.Meta(ge=0, le=1)]
    answers: _Count
    bytes_per_second: _Count
    late: bool


class RouteChangeRow(msgspec.Struct, frozen=True, gc=False, rename={"before": "from", "after": "to"}):
    """Rows went over from one way to another: names of those that lead, empty: directly."""

    at_ms: _Count
    before: _Name
    after: _Name
    reason: _Name


class RouteRow(msgspec.Struct, frozen=True, gc=False):
    """The way of one channel to another node.

    Attributes:
        edge, target: of the plan, and the instance there; to: name of its node.
        paths: which ways there may be.
        relay: node that relays now, empty: directly; since_ms: since when.
        state: `works`, `doubted`, `silent` or `down`.
        circuits: those that are open; changes: the last ones; moves: how often, by reason.
        frames: by `direct` and `relayed`.
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


def routes_of(report: dict[str, Any]) -> list[RouteRow]:
    """What an executor tells of its ways; what makes no sense is left out."""
    told = report.get("routes")
    found = []
    for one in told[:MAX_ROUTES] if isinstance(told, list) else []:
        try:
            found.append(msgspec.convert(one, RouteRow))
        except msgspec.ValidationError:
            continue
    return found
