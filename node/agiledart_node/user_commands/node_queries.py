"""Answers to users' queries about nodes: nodes, route, info. Their bodies: docs/reference/control-api.md."""

from typing import Any

import msgspec

from agiledart_kernel.instants import Duration
from agiledart_kernel.node_id import NodeId, key_of_name
from agiledart_kernel.peer import Peer
from agiledart_node.context.display_names import display_names
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.forming.network_of_loads import network_of_loads
from agiledart_node.forming.surveyor import Surveyor
from agiledart_node.hosting.application_host import ApplicationHost
from agiledart_node.wire.formation_messages import ROUTED_CODEC, RouteProbe, TraceHops
from agiledart_node.wire.lease_responses import lease_row
from agiledart_node.wire.node_responses import (
    HopRow,
    InfoResponse,
    LatencyPositionRow,
    NodeIdentityRow,
    NodeRow,
    NodesResponse,
    RouteResponse,
)
from agiledart_overlay.wire.effects import Delivered
from agiledart_overlay.wire.events import RouteMessage
from agiledart_placement.files.network_file import network_document

MAX_NODES = 256
"""Nodes in one answer of `nodes`."""


class NodeQueries:
    """Queries about this node, the nodes that it knows, and the way to a key."""

    def __init__(self, context: NodeContext, hosting: ApplicationHost, surveying: Surveyor) -> None:
        self._context, self._hosting, self._surveying = context, hosting, surveying

    async def nodes(self, request: int, *, with_network: bool = False) -> None:
        """Answer `nodes` with this node and the nodes that it knows; with a network of `agiledart place` when requested."""
        peers = self._context.known()
        loads = await self._surveying.loads(
            list(peers[:MAX_NODES]), self._context.config.report_timeout_ns, wants_round_trips=with_network
        )
        names = display_names(peers)
        rows = []
        for peer in peers[:MAX_NODES]:
            answer = loads.get(peer.node)
            row = NodeRow(
                **_member(peer, names),
                outside=peer.reach.outside,
                open=peer.reach.is_open,
                held_by=[names.get(node, node.short) for node in peer.reach.holders],
                is_this_node=peer.node == self._context.me.node,
                rtt_ms=self._rtt_ms(peer),
                answers=answer is not None,
                coordinate=self._coordinate(peer),
            )
            if answer is not None:
                load = answer[1]
                row = msgspec.structs.replace(
                    row,
                    instances=load.operators,
                    capacity=load.capacity,
                    executors=load.executors,
                    applications=list(load.applications),
                    is_leaving=load.is_draining and not load.stays,
                    is_draining=load.stays,
                    schedules=load.schedules,
                    clock_s=self._clock_s(peer),
                    software=load.software,
                    specification=load.specification,
                    labels=list(load.labels),
                    cores=load.cores or None,
                    speed=load.speed_permille / 1e3 if load.speed_permille else None,
                    busy=None if load.busy_permille is None else load.busy_permille / 1e3,
                    free_memory_mb=load.free_memory_mb,
                    lease=None if load.lease is None else lease_row(load.lease),
                )
            rows.append(row)
        network = network_of_loads(loads) if with_network else None
        self._context.reply(
            request,
            NodesResponse(
                rows,
                len(peers),
                clocks=list(self._context.clocks.skewed_clocks()),
                network=None if network is None else network_document(network),
                notes=[] if network is None else list(network.notes),
            ),
        )

    def _coordinate(self, peer: Peer) -> LatencyPositionRow | None:
        """Return the position of a node in the latency space."""
        overlay = self._context.overlay
        place = overlay.coordinate if peer.node == self._context.me.node else overlay.coordinate_of(peer.node)
        if place is None:
            return None
        point = [round(axis / 1e3, 3) for axis in (place.x, place.y, place.z)]
        return LatencyPositionRow(point, round(place.height / 1e3, 3), round(place.error / 1e6, 3))

    def _clock_s(self, peer: Peer) -> float | None:
        off = self._context.clocks.skew_ms(peer.node)
        return None if off is None else round(off / 1e3, 1)

    def _rtt_ms(self, peer: Peer) -> float | None:
        rtt = self._context.overlay.rtt_ns(peer.node)
        return round(rtt / 1e6, 3) if rtt else None

    def key_of(self, text: str) -> NodeId:
        """Return the key that a user means: `name:TEXT`, the name of a known node, or hex digits."""
        kind, colon, rest = text.partition(":")
        if colon and kind == "name":
            return key_of_name("name", rest)
        if colon and kind == "application":
            return key_of_name("application", rest)
        for peer in self._context.known():
            if peer.name == text:
                return peer.node
        try:
            return NodeId.from_hex(text.lower())
        except ValueError:
            raise CommandRefused(
                f"invalid key {text!r}: give 1 to 32 hex digits, name:TEXT, application:NAME, or the name of a node "
                f"({', '.join(sorted(peer.name for peer in self._context.known() if peer.name)[:20])}).",
                2,
            ) from None

    async def route(self, request: int, text: str) -> None:
        """Answer `route` with the hops to the root of a key."""
        key = self.key_of(text)
        began, number = self._context.now, self._context.requests.number()
        self._context.deliver_to_overlay(RouteMessage(key, ROUTED_CODEC.encode(RouteProbe(number))))
        answers = await self._context.requests.answers(
            {number: None}, Duration(3 * self._context.config.report_timeout_ns)
        )
        hops = answers.get(number)
        if not isinstance(hops, TraceHops):
            raise CommandRefused(f"The root of {key.short}… did not answer the route probe. Try again.")
        names = display_names((*hops.path, *self._context.known()))
        rows = [HopRow(**_member(peer, names), rtt_from_here_ms=self._rtt_ms(peer)) for peer in hops.path]
        duration_ms = round((self._context.now - began) / 1e6, 3)
        self._context.reply(request, RouteResponse(key.hex, len(rows) - 1, rows, duration_ms))

    def probed(self, effect: Delivered, probe: RouteProbe) -> None:
        """Report the path of a probe to its source, as root of the key."""
        self._context.send(effect.source, TraceHops(probe.request, effect.path))

    def traced(self, sender: Peer, message: TraceHops) -> None:
        """Take the answer of a key's root."""
        path = message.path
        if path and path[0].node == self._context.me.node and path[-1].node == sender.node:
            self._context.requests.resolve(message.request, message)

    async def info(self, request: int) -> None:
        """Answer `info` with what this node knows about itself; the driver adds its own figures."""
        context = self._context
        known = context.known()
        body = InfoResponse(
            **_member(context.me, display_names(known)),
            joined=context.overlay.joined,
            is_leaving=context.is_leaving,
            is_draining=context.is_draining,
            known_nodes=len(known),
            instances=self._hosting.operators,
            capacity=context.config.capacity,
            executors=context.config.executors,
            applications=list(self._hosting.applications),
            overlay=msgspec.to_builtins(context.overlay.statistics()),
            ignored_messages=dict(sorted(context.dropped.items())),
        )
        context.reply(request, body)


def _member(peer: Peer, names: dict[NodeId, str]) -> dict[str, Any]:
    """Return the first fields of a row about a node."""
    name = names.get(peer.node, peer.name)
    return msgspec.structs.asdict(
        NodeIdentityRow(name, peer.node.hex, peer.incarnation, peer.address, peer.zone, peer.host)
    )
