"""`drain`: the agent that a user asked brings the order to the node, and looks on until it is empty, or has left."""

from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker, refused_unseen
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.records.allowing import why_not
from agiledart_node.records.order_checks import Orders
from agiledart_node.wire.change_bodies import DrainedBody, LeftRow
from agiledart_node.wire.commands import DrainNode
from agiledart_node.wire.drain_messages import EMPTYING, LEAVING, SERVING, AskDrain, DrainIs, LookAtDrain
from agiledart_node.wire.effects import Progressed

_LOOK: Final = Duration(250 * MILLISECOND)
_LEAVE: Final = Duration(20 * SECOND)
"""For a node that leaves to be gone."""


class WantingDrains:
    """Brings users' orders to nodes."""

    def __init__(self, desk: Desk, orders: Orders) -> None:
        self._desk, self._orders = desk, orders

    async def drain(self, request: int, command: DrainNode, submitter: str, asker: Asker, signed: bytes) -> None:
        """Answer `drain`. Raises CommandRefused."""
        desk = self._desk
        asker, submitter = self._orders.given(signed, command, asker, submitter)
        if self._orders.are_signed and (why := refused_unseen(asker, "drain")):
            raise NotAllowed(why, why_not(asker, "drain", why))
        peer = desk.node_named(command.node)
        name = desk.names()[peer.node]
        number = desk.talks.number()
        message = AskDrain(number, command, signed, submitter)
        first = await desk.talks.ask(peer, message, number, DrainIs, Duration(desk.config.ask_timeout_ns))
        if first is None:
            raise CommandRefused(f"{name} does not answer. Look at agiledart nodes; an older version can't be drained.")
        if first.refusal:
            raise NotAllowed(first.reason, first.refusal) if first.reason else CommandRefused(first.refusal)
        now = await self._looked_on(request, peer, name, first)
        state = now.state
        if state == SERVING and not command.undo:
            raise CommandRefused(f"{name} was told to take work again meanwhile.")
        if state == LEAVING and peer.node != desk.me.node:
            await self._gone(request, peer, name)
            state = "left"
        rows = [LeftRow(run.name, run.version, run.instances, run.took_ms / 1_000) for run in now.left]
        desk.reply(request, DrainedBody(name, peer.node.hex, state, first.already, [] if first.already else rows))

    async def _looked_on(self, request: int, peer: Peer, name: str, now: DrainIs) -> DrainIs:
        """How it stands when it is empty. Raises CommandRefused when it was given up."""
        desk, told = self._desk, 0
        while True:
            for line in now.lines:
                desk.emit(Progressed(request, f"{name}: {line}"))
            told += len(now.lines)
            if now.refusal:
                raise CommandRefused(now.refusal)
            if now.state != EMPTYING:
                return now
            await desk.talks.pause(_LOOK)
            number = desk.talks.number()
            answer = await desk.talks.ask(
                peer, LookAtDrain(number, told), number, DrainIs, Duration(desk.config.ask_timeout_ns)
            )
            if answer is None:
                raise CommandRefused(
                    f"{name} was lost while it was drained. Look at agiledart nodes, and agiledart list."
                )
            now = answer

    async def _gone(self, request: int, peer: Peer, name: str) -> None:
        desk = self._desk
        until = desk.now + _LEAVE
        while any(known.node == peer.node for known in desk.overlay.known_peers()):
            if desk.now > until:
                raise CommandRefused(f"{name} is empty, and has not left the ring in {_LEAVE // SECOND} s. Look at it.")
            await desk.talks.pause(_LOOK)
        desk.emit(Progressed(request, f"{name}: it has left the ring"))
