"""Rejoin monitor: a member of a ring that reaches no other member says so, and keeps looking for them.

It may be alone rightly, after the others failed or left, or wrongly, since it lost their addresses or a link is cut. No
node can tell the two apart, so the text is the same for both. The state ends by itself as soon as one of the others
answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.ring.not_greeted import NotGreeted
from agiledart_agent.ring.peer_addresses import PeerAddressFile
from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.events import UnwatchPeer, WatchPeer

LOOK_SECONDS = 2.0
GRACE_SECONDS = 20.0
"""Time between two checks, at first and after a while."""

MAX_LISTED_ADDRESSES = 3


class RejoinMonitor:
    """Looks for other nodes while this node reaches none.

    Args:
        peer_addresses: their last known addresses.
        lan_addresses: returns addresses that were announced on the local network.
        greet: returns the node at an address, or why there is none.
        known: returns the nodes that this node reaches now.
        feed: takes events for the node.

    Attributes:
        is_expected: there must be other nodes: this node joined a network that it did not create.
        alone: text for users; empty while another node is reached, and in a network of one.
    """

    def __init__(
        self,
        peer_addresses: PeerAddressFile,
        lan_addresses: Callable[[], Sequence[str]],
        greet: Callable[[str], Awaitable[Peer | NotGreeted]],
        known: Callable[[], Sequence[Peer]],
        feed: Callable[[Event], None],
        log: AgentLog,
    ) -> None:
        self._lan_addresses = lan_addresses
        self._peer_addresses, self._greet, self._known, self._feed, self._log = peer_addresses, greet, known, feed, log
        self._checked_at: dict[NodeId, Peer] = {}
        self._seen: dict[NodeId, Peer] = {}
        self.is_expected = False
        self.alone = ""

    async def check_forever(self) -> None:
        """Check now and then. The log says when the isolation begins and when it ends."""
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, GRACE_SECONDS) if await self.look() else LOOK_SECONDS

    async def look(self) -> bool:
        """Check once. Return whether this node is isolated and should not be."""
        if self._known():
            self._found()
            return False
        addresses = list(dict.fromkeys([*self._peer_addresses.addresses(), *self._lan_addresses()]))
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
            # A node that has just started joins by itself. A contact would tell it that a node of its id is already in
            # the ring.
            if self._seen.get(node) == peer and node not in self._checked_at:
                self._checked_at[node] = peer
                self._feed(WatchPeer(peer))  # the ring probes it, and two rings that meet become one
        self._seen = seen
        return True

    def _found(self) -> None:
        if self.alone:
            count = len(self._known())
            reached = f"{count} other {'node is' if count == 1 else 'nodes are'} reachable"
            self._log.info("ring.reconnected", f"  no longer isolated: {reached}")
        self.alone = ""
        for node in self._checked_at:
            self._feed(UnwatchPeer(node))
        self._checked_at.clear()
        self._seen.clear()


def _list_text(addresses: Sequence[str]) -> str:
    if not addresses:
        return (
            "isolated, looking for the other nodes of this network, without any address of them (peers.json is lost). Give it "
            "one:  agiledart token create   on another node, and   agiledart agent --join @FILE   here"
        )
    listed = ", ".join(addresses[:MAX_LISTED_ADDRESSES])
    more = f" and {len(addresses) - MAX_LISTED_ADDRESSES} more" if len(addresses) > MAX_LISTED_ADDRESSES else ""
    return (
        f"isolated, looking for {listed}{more}: none of them answers. Check that they run and can be reached from here"
    )
