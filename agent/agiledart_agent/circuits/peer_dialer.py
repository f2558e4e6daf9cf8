"""Dials to peers: to the addresses that may be dialled, and through relays where none of them answers."""

import time
from collections.abc import Awaitable, Callable
from functools import partial

from agiledart_agent.circuits.relay_service import RelayService
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import Reachability
from agiledart_node.reaching.dial_backoff import DialBackoff
from agiledart_node.reaching.dial_rules import dial_candidates
from agiledart_transport.circuits import Via
from agiledart_transport.link import Link
from agiledart_transport.outgoing import first_opened
from agiledart_transport.relay_fallback import dial_direct_or_relayed

DIRECT_SECONDS = 1.0
"""Time for which only the direct path to a peer is tried."""

MAX_PROVEN = 1_024
"""Peers whose address is remembered as one that led to them."""


class PeerDialer:
    """Dials of one agent to peers.

    Args:
        reach: returns how this agent is reached.
        newest: returns a peer with what it said last about its reachability.
    """

    def __init__(
        self, relay_service: RelayService, reach: Callable[[], Reachability], newest: Callable[[Peer], Peer]
    ) -> None:
        self._relay_service, self._reach, self._newest = relay_service, reach, newest
        self._proven: dict[NodeId, str] = {}
        self._backoff = DialBackoff()

    def note_address(self, peer: Peer, address: str) -> None:
        """Remember that an address has led to a peer."""
        self._proven.pop(peer.node, None)
        if len(self._proven) >= MAX_PROVEN:
            del self._proven[next(iter(self._proven))]
        self._proven[peer.node] = address

    def is_proven(self, peer: Peer) -> bool:
        """Report whether the address of a peer has led to it."""
        return self._proven.get(peer.node) == peer.address

    async def connect_by_any_path(
        self, peer: Peer, connect: Callable[[str, Via | None], Awaitable[Link]], *, directly: bool = False
    ) -> Link:
        peer = self._newest(peer)
        is_proven = self.is_proven(peer)

        candidates = dial_candidates(peer, self._reach(), is_proven=is_proven)

        async def direct() -> Link:
            addresses = self._backoff.usable(candidates, time.monotonic_ns())
            dials = [partial(self._dial_candidate, connect, address) for address in addresses]
            return await first_opened(dials, lambda late: late.close("done"))

        async def relayed() -> Link:
            circuit = await self._relay_service.circuit(peer.node, holders=peer.reach.holders)
            return await connect(peer.address, circuit)

        if not candidates:
            if directly:
                raise ConnectionError(f"{peer.address} is an address of another network")
            return await relayed()
        if directly:
            return await direct()
        try:
            return await dial_direct_or_relayed(direct, relayed, DIRECT_SECONDS, believes_refusal=is_proven)
        except ConnectionRefusedError as error:
            if is_proven:
                raise
            raise ConnectionError(str(error)) from None  # it says nothing of the peer: another machine may be there

    async def _dial_candidate(self, connect: Callable[[str, Via | None], Awaitable[Link]], address: str) -> Link:
        """Dial one address of a peer, and remember whether it leads there."""
        try:
            link = await connect(address, None)
        except BaseException:  # also cancelled: another address has led there earlier
            self._backoff.failed(address, time.monotonic_ns())
            raise
        self._backoff.worked(address)
        return link
