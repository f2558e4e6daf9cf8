"""Commands `ban`, `unban` and `bans`: the agent that an admin asked applies the ban, sends it to all others, and answers."""

from agiledart_kernel.bans import Ban as KnownBan
from agiledart_kernel.errors import Refused
from agiledart_kernel.node_id import node_id_of_key
from agiledart_kernel.permissions import Principal
from agiledart_node.banning.ban_gossip import BanGossip
from agiledart_node.context.node_context import NodeContext, NotAllowed
from agiledart_node.records.command_verifier import CommandVerifier, ban_target
from agiledart_node.records.signatures import VerifyCommand
from agiledart_node.wire.admission_responses import BanRow, BansResponse
from agiledart_node.wire.commands import SetBan


class BanCommands:
    """Bans at one node.

    Attributes:
        spreading: known bans, and their gossip.
    """

    def __init__(self, context: NodeContext, verifier: CommandVerifier, verify: VerifyCommand | None) -> None:
        self._context, self._verifier = context, verifier
        self.spreading = BanGossip(context, verifier, verify)

    async def ban(self, request: int, command: SetBan, principal: Principal, signed: bytes) -> None:
        """Apply a ban, and answer once it is in force here. Raises CommandRefused."""
        self._verifier.identify_requester(signed, command, principal, "")
        try:
            target = ban_target(command.target)
            if command.until and node_id_of_key(target) == self._context.me.node:
                raise Refused("own", "this node would refuse all others")
            self.spreading.give(signed)
        except Refused as error:
            raise NotAllowed("command", _why(error)) from None
        self._context.reply(
            request, BansResponse([self._row(ban) for ban in self.spreading.known.all() if ban.target == target])
        )

    async def bans(self, request: int) -> None:
        """Answer with all bans known here."""
        self._context.reply(request, BansResponse([self._row(ban) for ban in self.spreading.known.all()]))

    def _row(self, ban: KnownBan) -> BanRow:
        until = self._verifier.banned.get(ban.target, 0)
        is_in_force = until * 1_000 > self._context.wall_ms
        return BanRow(ban.target.hex(), ban.until * 1_000, ban.reason, ban.by.hex(), ban.wall_ms, is_in_force)


def _why(error: Refused) -> str:
    if error.reason == "role":
        return "Only an admin may ban. Ask the agent that founded the network, or use an admin's token."
    if error.reason == "own":
        return "This key or token is your own, or your rights derive from it: you could not revoke such a ban."
    return f"This ban is refused: {error}."
