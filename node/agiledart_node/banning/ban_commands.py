"""`ban`, `unban` and `bans`: the agent that an admin asked takes the ban, tells all others, and answers."""

from agiledart_kernel.bans import Ban as KnownBan
from agiledart_kernel.errors import Refused
from agiledart_kernel.permissions import Principal
from agiledart_node.banning.ban_gossip import BanGossip
from agiledart_node.context.node_context import NodeContext, NotAllowed
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.signatures import VerifyCommand
from agiledart_node.wire.admission_responses import BanRow, BansResponse
from agiledart_node.wire.commands import SetBan


class BanCommands:
    """Bans at one node.

    Attributes:
        spreading: what is known, and how it travels.
    """

    def __init__(self, context: NodeContext, verifier: CommandVerifier, verify: VerifyCommand | None) -> None:
        self._context, self._verifier = context, verifier
        self.spreading = BanGossip(context, verifier, verify)

    async def ban(self, request: int, command: SetBan, principal: Principal, signed: bytes) -> None:
        """Answers when it is in force here. Raises CommandRefused."""
        self._verifier.given(signed, command, principal, "")
        try:
            self.spreading.give(signed)
        except Refused as error:
            raise NotAllowed("command", _why(error)) from None
        target = bytes.fromhex(command.target)
        self._context.reply(
            request, BansResponse([self._row(ban) for ban in self.spreading.known.all() if ban.target == target])
        )

    async def bans(self, request: int) -> None:
        """All that are known here."""
        self._context.reply(request, BansResponse([self._row(ban) for ban in self.spreading.known.all()]))

    def _row(self, ban: KnownBan) -> BanRow:
        until = self._verifier.banned.get(ban.target, 0)
        is_in_force = until * 1_000 > self._context.wall_ms
        return BanRow(ban.target.hex(), ban.until * 1_000, ban.reason, ban.by.hex(), ban.wall_ms, is_in_force)


def _why(error: Refused) -> str:
    if error.reason == "role":
        return "Only an admin bans: ask where the network was founded, or with the token of an admin."
    if error.reason == "own":
        return "That key or token is your own, or stands above you: whoever bans must stay able to take it back."
    return f"This ban is refused: {error}."
