"""A member of a ring that reaches none of the others says so, and goes on looking for them.

It may be right alone, after the others died or left, or wrong, since it forgot where they are or a link is cut: nobody can tell, so
both is said in the same words, and ends by itself as soon as one of them answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.ring.peer_addresses import PeerAddressFile
from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.events import UnwatchPeer, WatchPeer

LOOK_SECONDS = 2.0
GRACE_SECONDS = 20.0
"""Between two looks, at first and after a while."""

MAX_LISTED_ADDRESSES = 3


class RejoinMonitor:
    """Looks for others while there is none.

    Args:
        memory: where they were.
        greet: the node at an address, or why there is none.
        known: those that this node reaches now.
        feed: takes events for the node.

    Attributes:
        is_expected: there must be others: this node joined a network that it did not found.
        alone: what to tell users; empty while somebody is reached, and in a network of one.
    """

    def __init__(
        self,
        peer_addresses: PeerAddressFile,
        greet: Callable[[str], Awaitable[Peer | str]],
        known: Callable[[], Sequence[Peer]],
        feed: Callable[[Event], None],
        log: AgentLog,
    ) -> None:
        self._peer_addresses, self._greet, self._known, self._feed, self._log = peer_addresses, greet, known, feed, log
        self._checked_at: dict[NodeId, Peer] = {}
        self._seen: dict[NodeId, Peer] = {}
        self.is_expected = False
        self.alone = ""

    async def check_forever(self) -> None:
        """Look now and then; told in the log when it begins and when it ends."""
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, GRACE_SECONDS) if await self.look() else LOOK_SECONDS

    async def look(self) -> bool:
        """Look once; whether this node is alone, and should not be."""
        if self._known():
            self._found()
            return False
        addresses = self._peer_addresses.addresses()
        if not addresses and not self.is_expected:
            return False
        was_alone, self.alone = bool(self.alone), _list_text(addresses)
        if not was_alone:
            self._log.warning("ring.isolated", f"  {self.alone}", addresses=len(addresses))
        seen: dict[NodeId, Peer] = {}
        for peer in await asyncio.gather(*(self._greet(address) for address in addresses)):
            if isinstance(peer, Peer):
                seen[peer.node] = peer
        for node, peer in seen.items():
            # Who has just begun comes by itself, and would be told that somebody of its number is in the ring already.
            if self._seen.get(node) == peer and node not in self._checked_at:
                self._checked_at[node] = peer
                self._feed(WatchPeer(peer))  # the ring probes it, and two rings that meet become one
        self._seen = seen
        return True

    def _found(self) -> None:
        if self.alone:
            self._log.info("ring.reconnected", f"  no longer alone: {len(self._known())} other nodes are reached")
        self.alone = ""
        for node in self._checked_at:
            self._feed(UnwatchPeer(node))
        self._checked_at.clear()
        self._seen.clear()


def _list_text(addresses: Sequence[str]) -> str:
    if not addresses:
        return (
            "alone, looking for the other nodes of this network, and no address of them is known (peers.json is lost). Give it "
            "one:  agiledart token create   on another node, and   agiledart agent --join @FILE   here"
        )
    shown = ", ".join(addresses[:MAX_LISTED_ADDRESSES])
    more = f" and {len(addresses) - MAX_LISTED_ADDRESSES} more" if len(addresses) > MAX_LISTED_ADDRESSES else ""
    return f"alone, looking for {shown}{more}: none of them answers. Look whether they run and can be reached from here"
