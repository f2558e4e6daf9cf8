"""Gossip of bans, so that every node learns them and keeps them.

    push     a node sends a new ban at once to all known nodes but its sender
    compare  it sends hashes of its bans to new neighbours, and to one neighbour in turn every ten seconds; only differences travel

A node without bans compares with new neighbours only. The driver closes links and keeps the set on the disk. A node accepts a ban
because of its signature, whoever sent it. Source: the admission spec, section 4.
"""

from agiledart_kernel.bans import BanSet, differing, parse_ban
from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import SKEW_SECONDS
from agiledart_kernel.instants import SECOND, Duration, Instant
from agiledart_kernel.machine import SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.signatures import VerifyCommand
from agiledart_node.wire.ban_messages import MAX_BANS_PER_MESSAGE, BanDigest, BanNews
from agiledart_node.wire.effects import BansChanged

TIMER = ("node", "bans")
COMPARE_INTERVAL = Duration(10 * SECOND)


class BanGossip:
    """The bans that a node knows.

    Attributes:
        known: all of them.
    """

    def __init__(self, context: NodeContext, verifier: CommandVerifier, verify: VerifyCommand | None) -> None:
        self._context, self._verifier, self._verify = context, verifier, verify
        self.known = BanSet()
        self._compared: dict[NodeId, None] = {}
        self._next_neighbour = 0
        self._is_timed = False

    def give(self, raw: bytes) -> None:
        """Apply a ban of a user of this node; raises `Refused`."""
        if self._verify is None:
            raise Refused("form", "nothing is signed in this world")
        ban = parse_ban(raw, self._verify(raw))
        if self.known.add(ban):
            self._changed((raw,), None)

    def on_bans_found(self, signed_commands: tuple[bytes, ...]) -> None:
        """Apply the bans that this node kept on its disk."""
        new = self._taken(signed_commands)
        if new:
            self._changed(new, None, announces=False)

    def on_news(self, sender: Peer, message: BanNews) -> None:
        """Apply bans that a peer sent."""
        new = self._taken(message.signed_commands)
        if new:
            self._changed(new, sender)

    def on_digest(self, sender: Peer, message: BanDigest) -> None:
        """Answer a peer's digest with the bans that differ."""
        ours = self.known.digest()
        if ours == message.ranges:
            return
        if message.asks:
            self._context.send(sender, BanDigest(ours, asks=False))
        missing = [ban.raw for number in differing(ours, message.ranges) for ban in self.known.in_range(number)]
        for start in range(0, len(missing), MAX_BANS_PER_MESSAGE):
            self._context.send(sender, BanNews(tuple(missing[start : start + MAX_BANS_PER_MESSAGE])))

    def neighbours_changed(self) -> None:
        """Exchange bans with new neighbours."""
        leaves = self._context.overlay.leaf_set.members
        new = [peer for peer in leaves if peer.node not in self._compared]
        self._compared = dict.fromkeys(peer.node for peer in leaves)
        if self._verify is not None:
            for peer in new:
                self._context.send(peer, BanDigest(self.known.digest()))

    def on_timer(self) -> None:
        """Compare with the next neighbour."""
        self.known.forget_old(self._context.common_ms // 1_000)
        leaves = self._context.overlay.leaf_set.members
        if leaves:
            self._next_neighbour += 1
            self._context.send(leaves[self._next_neighbour % len(leaves)], BanDigest(self.known.digest()))
        self._is_timed = False
        self._set_timer()

    def _set_timer(self) -> None:
        if len(self.known) and not self._is_timed:
            self._is_timed = True
            self._context.emit(SetTimer(TIMER, Instant(self._context.now + COMPARE_INTERVAL)))

    def _taken(self, signed_commands: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Add valid bans; return the new ones."""
        new = []
        for raw in signed_commands:
            try:
                if self._verify is None:
                    continue
                ban = parse_ban(raw, self._verify(raw))
                self._check_clock(ban.wall_ms)
                if self.known.add(ban):
                    new.append(raw)
            except Refused as error:
                self._context.drop(f"ban: {error.reason}")
        return tuple(new)

    def _changed(self, signed_commands: tuple[bytes, ...], sender: Peer | None, *, announces: bool = True) -> None:
        self._verifier.banned = self.known.in_force()
        for peer in self._context.overlay.known_peers() if announces else ():
            if sender is None or peer.node != sender.node:
                # Banned nodes receive it as well: afterwards they have no link.
                self._context.send(peer, BanNews(signed_commands))
        self._context.emit(BansChanged(self._verifier.banned, tuple(ban.raw for ban in self.known.all())))
        self._set_timer()

    def _check_clock(self, wall_ms: int) -> None:
        now = self._context.common_ms
        if now and wall_ms > now + SKEW_SECONDS * 1_000:
            raise Refused("not yet valid")
