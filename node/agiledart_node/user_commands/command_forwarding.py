"""Signed commands that a user gives to any agent and one named node carries out, such as those about secrets and feeds.

The asked agent forwards them to that node, which verifies them again: no node trusts the sender of a command.
"""

from collections.abc import Callable
from typing import TypeVar

from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Completed, Effect, Failed, Message
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NodeContext, NotAllowed
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.permission_checks import check_unseen
from agiledart_node.wire.commands import CreateFeed, RemoveFeed, SetSecret
from agiledart_node.wire.feed_messages import FeedChanged
from agiledart_node.wire.secret_messages import SecretStored

ForwardedCommand = SetSecret | CreateFeed | RemoveFeed


A = TypeVar("A", FeedChanged, SecretStored)
"""Answer of the node that carries a command out; an empty refusal: it has."""


class CommandForwarding:
    """Forwarding of one kind of command, on the asked agent and on the node that carries it out.

    Args:
        verb: as in `agiledart_kernel.permissions`.
    """

    def __init__(self, context: NodeContext, verifier: CommandVerifier, verb: str) -> None:
        self._context, self._verifier, self._verb = context, verifier, verb

    def requester(self, command: ForwardedCommand, principal: Principal, signed: bytes) -> Principal:
        """Return the author of a command to this agent. Raises NotAllowed when the signature or its grant forbids it."""
        principal, _ = self._verifier.identify_requester(signed, command, principal, "")
        check_unseen(principal, self._verb, command.name)
        return principal

    async def forward(self, command: ForwardedCommand, message: Callable[[int], Message], expects: type[A]) -> Peer:
        """Have the node of a command carry it out, and return that node. Raises CommandRefused.

        Args:
            message: makes the request with a number.
        """
        context, peer = self._context, self._peer(command.node)
        number = context.requests.number()
        timeout = Duration(context.config.ask_timeout_ns)
        answer = await context.requests.ask(peer, message(number), number, expects, timeout)
        if answer is None or answer.refusal:
            raise CommandRefused(answer.refusal if answer is not None else f"{peer.name} did not answer. Try again.")
        return peer

    def _peer(self, node: str) -> Peer:
        for peer in self._context.known():
            if peer.node.hex == node:
                return peer
        raise CommandRefused(f"{self._context.me.name} knows no node {node[:16]}. Ask the agent of that node itself.")

    async def carry_out(
        self, command: ForwardedCommand, signed: bytes, work: Callable[[int, Principal], Effect], timeout_ns: int
    ) -> str:
        """Carry out a command that another agent forwards, after it was verified; return why not, else "".

        Args:
            work: makes the request to the driver, of a number and the author of the command.
        """
        context = self._context
        try:
            principal, _ = self._verifier.identify_requester(signed, command, Principal(), "")
            if self._verifier.requires_signatures:
                check_unseen(principal, self._verb, command.name)
        except NotAllowed as error:
            context.drop("command: refused")
            return error.text
        if command.node != context.me.node.hex:
            return f"that command is not for {context.me.name}, but for another node"
        number = context.requests.number()
        answer = (await context.ask_driver(number, work(number, principal), timeout_ns)).get(number)
        if isinstance(answer, Completed):
            return ""
        reason = answer.reason if isinstance(answer, Failed) else ""
        return reason or f"{context.me.name} could not do it in time. Try again."
