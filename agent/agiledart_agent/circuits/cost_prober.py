"""Driver of `HopCosts`: probes the links to neighbours over the service `relay`, and answers theirs."""

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from agiledart_agent.circuits.relay_messages import (
    COSTS_FEATURE,
    CostClaim,
    CostRequest,
    CostsToGo,
    ProbeCosts,
    RelayAnswer,
    RelayMessage,
)
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_shuffle.cost_exchange import Claims
from agiledart_shuffle.hop_costs import INSPECT_NS, HopCosts, NotifyNeighbour, ProbeNeighbour, WantedCost
from agiledart_shuffle.proposals import COST_MOST
from agiledart_transport.link import Link

ANSWER_SECONDS: Final = 3.0
"""Time for an answer; after it the link counts as lost, and is dialled again later."""

IDLE_SECONDS: Final = 2.0
"""Time between two inspections while no destination is in use."""


class RelayLinks(Protocol):
    """Links of the service `relay`."""

    async def link_to(self, peer: Peer) -> Link:
        """Return an open link to a peer. Raises OSError, RemoteProtocolError."""
        ...

    async def ask(
        self, peer: Peer, question: Callable[[int], RelayMessage], seconds: float = ...
    ) -> tuple[RelayAnswer, Link]:
        """Return the answer of a peer to one question. Raises OSError."""
        ...

    def send(self, link: Link, message: RelayMessage) -> None:
        """Send a message over a link of this service."""
        ...


class CostProber:
    """Probes of this agent, and answers to those of others.

    Args:
        costs: the machine that decides.
        neighbours: returns the peers with a direct link that answer probes, the nearest first.
        links: of the service `relay`.
    """

    def __init__(self, costs: HopCosts, neighbours: Callable[[], Iterable[Peer]], links: RelayLinks) -> None:
        self.costs, self._neighbours, self._links = costs, neighbours, links
        self._peers: dict[NodeId, Peer] = {}
        self._askers: dict[NodeId, Link] = {}
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}

    async def run_forever(self) -> None:
        """Send probes while a destination is in use."""
        while True:
            await asyncio.sleep(INSPECT_NS / SECOND if self.costs.destinations else IDLE_SECONDS)
            if self.costs.destinations:
                self.inspect()

    def inspect(self) -> None:
        """Carry out what is due now."""
        now = time.monotonic_ns()
        self._peers = {peer.node: peer for peer in self._neighbours()}
        self.costs.set_neighbours(self._peers, now)
        self._carry_out(self.costs.inspect(now))

    def use(self, destination: NodeId) -> None:
        """Keep the costs to a destination; they are there after the first answers."""
        is_first = not self.costs.destinations
        self.costs.use(destination, time.monotonic_ns())
        if is_first:
            self.inspect()

    async def close(self) -> None:
        """End all probes."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def probed(self, link: Link, probe: ProbeCosts) -> None:
        """Answer a probe of a neighbour, if it is an agent."""
        if link.peer.grant.role != "agent":
            return
        wanted = (WantedCost(request.destination, request.relays) for request in probe.wanted)
        self._askers[link.peer.node_id] = link
        claims = self.costs.asked(link.peer.node_id, wanted, time.monotonic_ns())
        self._links.send(link, CostsToGo(probe.request, _to_wire(claims)))

    def noticed(self, link: Link, notice: CostsToGo) -> None:
        """Take a notice of costs that moved. Raises RemoteProtocolError."""
        self._carry_out(self.costs.received(link.peer.node_id, _from_wire(notice), time.monotonic_ns()))

    def closed(self, link: Link) -> None:
        """Forget a link of an asking neighbour."""
        if self._askers.get(link.peer.node_id) is link:
            del self._askers[link.peer.node_id]

    def _carry_out(self, effects: Iterable[ProbeNeighbour | NotifyNeighbour]) -> None:
        for effect in effects:
            match effect:
                case ProbeNeighbour(neighbour, wanted):
                    if neighbour not in self._tasks:
                        self._tasks[neighbour] = asyncio.create_task(self._probe(self._peers[neighbour], wanted))
                case NotifyNeighbour(neighbour, claims):
                    if (link := self._askers.get(neighbour)) is not None and not link.closed:
                        self._links.send(link, CostsToGo(0, _to_wire(claims)))

    async def _probe(self, peer: Peer, wanted: tuple[WantedCost, ...]) -> None:
        requests = tuple(CostRequest(*want) for want in wanted)
        link: Link | None = None
        effects: list[ProbeNeighbour | NotifyNeighbour] = []
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                link = await self._links.link_to(peer)
            self.costs.probe_sent(peer.node, time.monotonic_ns())
            answer, _ = await self._links.ask(peer, lambda number: ProbeCosts(number, requests), ANSWER_SECONDS)
            claims = _from_wire(answer) if isinstance(answer, CostsToGo) else ()
            effects = self.costs.answered(peer.node, claims, time.monotonic_ns())
        except (OSError, ValueError, RemoteProtocolError):
            if link is not None:
                link.abort("stalled")
            effects = self.costs.lost(peer.node, time.monotonic_ns())
        finally:
            self._tasks.pop(peer.node, None)
        self._carry_out(effects)


def _to_wire(claims: Claims) -> tuple[CostClaim, ...]:
    return tuple(CostClaim(NodeId(node), min(float(COST_MOST), round(cost, 2))) for node, cost in claims if cost >= 0)


def _from_wire(message: CostsToGo) -> Claims:
    return tuple(
        (claim.destination, claim.cost if claim.cost < COST_MOST else float("inf")) for claim in message.claims
    )


def has_costs_feature(link: Link) -> bool:
    """Return whether the peer of a link answers probes."""
    return COSTS_FEATURE in link.peer.hello.features
