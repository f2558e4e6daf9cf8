"""The `drain` command: the asked agent forwards it to the node, and follows the progress until the node is empty or has left."""

from typing import Final

from agiledart_kernel.instants import MILLISECOND, SECOND, Duration
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal, refusal_before_lookup
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import why_not
from agiledart_node.wire.change_responses import DrainResponse, EvacuatedApplicationRow
from agiledart_node.wire.commands import DrainNode
from agiledart_node.wire.drain_messages import EMPTYING, LEAVING, SERVING, DrainStatus, QueryDrain, RequestDrain
from agiledart_node.wire.effects import Progressed

_POLL_INTERVAL: Final = Duration(250 * MILLISECOND)
_LEAVE: Final = Duration(20 * SECOND)
"""Timeout for a leaving node to be gone."""


class DrainRequests:
    """Forwards users' drain commands to nodes."""

    def __init__(self, context: NodeContext, verifier: CommandVerifier) -> None:
        self._context, self._verifier = context, verifier

    async def drain(
        self, request: int, command: DrainNode, submitter: str, principal: Principal, signed: bytes
    ) -> None:
        """Answer the `drain` command. Raises CommandRefused."""
        context = self._context
        principal, submitter = self._verifier.identify_requester(signed, command, principal, submitter)
        if self._verifier.requires_signatures and (why := refusal_before_lookup(principal, "drain")):
            raise NotAllowed(why, why_not(principal, "drain", why))
        peer = context.node_named(command.node)
        name = context.names()[peer.node]
        number = context.requests.number()
        message = RequestDrain(number, command, signed, submitter)
        first = await context.requests.ask(peer, message, number, DrainStatus, Duration(context.config.ask_timeout_ns))
        if first is None:
            raise CommandRefused(
                f"{name} does not answer. Look at agiledart nodes; a node of an older version can't be drained."
            )
        if first.refusal:
            raise NotAllowed(first.reason, first.refusal) if first.reason else CommandRefused(first.refusal)
        now = await self._wait_until_drained(request, peer, name, first)
        state = now.state
        if state == SERVING and not command.undo:
            raise CommandRefused(f"The drain of {name} was undone meanwhile, so it takes work again.")
        if state == LEAVING and peer.node != context.me.node:
            await self._wait_until_left(request, peer, name)
            state = "left"
        rows = [
            EvacuatedApplicationRow(run.name, run.version, run.instances, run.duration_ms / 1_000)
            for run in now.evacuated
        ]
        context.reply(
            request, DrainResponse(name, peer.node.hex, state, first.is_unchanged, [] if first.is_unchanged else rows)
        )

    async def _wait_until_drained(self, request: int, peer: Peer, name: str, now: DrainStatus) -> DrainStatus:
        """Return the status once the node is empty. Raises CommandRefused: the drain was given up."""
        context, lines_seen = self._context, 0
        while True:
            for line in now.lines:
                context.emit(Progressed(request, f"{name}: {line}"))
            lines_seen += len(now.lines)
            if now.refusal:
                raise CommandRefused(now.refusal)
            if now.state != EMPTYING:
                return now
            await context.requests.pause(_POLL_INTERVAL)
            number = context.requests.number()
            answer = await context.requests.ask(
                peer, QueryDrain(number, lines_seen), number, DrainStatus, Duration(context.config.ask_timeout_ns)
            )
            if answer is None:
                raise CommandRefused(
                    f"{name} was lost while it was drained. Look at agiledart nodes, and agiledart list."
                )
            now = answer

    async def _wait_until_left(self, request: int, peer: Peer, name: str) -> None:
        context = self._context
        until = context.now + _LEAVE
        while any(known.node == peer.node for known in context.overlay.known_peers()):
            if context.now > until:
                raise CommandRefused(
                    f"{name} is empty, but has not left the ring in {_LEAVE // SECOND} s. See its log."
                )
            await context.requests.pause(_POLL_INTERVAL)
        context.emit(Progressed(request, f"{name}: it has left the ring"))
