"""Delays between nodes out of the loads that they reported: half of the measured round trips."""

from collections.abc import Mapping

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.wire.formation_messages import NodeLoad


def measured_delays_ms(loads: Mapping[NodeId, tuple[Peer, NodeLoad]]) -> dict[tuple[NodeId, NodeId], float]:
    """Return one-way delays in both directions; where both ends measured, their mean. A pair that no node measured is missing."""
    measured: dict[tuple[NodeId, NodeId], list[int]] = {}
    for node, (_, load) in loads.items():
        for trip in load.round_trips:
            if trip.node in loads and trip.node != node:
                measured.setdefault((min(node, trip.node), max(node, trip.node)), []).append(trip.rtt_us)
    delays = {}
    for (a, b), trips in measured.items():
        delays[a, b] = delays[b, a] = round(sum(trips) / len(trips) / 2_000, 4)
    return delays
