"""`ban`, `unban` and `bans`: the agent that an admin asked takes the ban, tells all others, and answers."""

from agiledart_kernel.bans import Ban as KnownBan
from agiledart_kernel.errors import Refused
from agiledart_kernel.permissions import Asker
from agiledart_node.banning.spreading import Spreading
from agiledart_node.desk.desk import Desk, NotAllowed
from agiledart_node.records.order_checks import Orders
from agiledart_node.records.signatures import VerifyOrder
from agiledart_node.wire.admission_bodies import BanRow, BansBody
from agiledart_node.wire.commands import Ban


class Banning:
    """Bans at one node.

    Attributes:
        spreading: what is known, and how it travels.
    """

    def __init__(self, desk: Desk, orders: Orders, verify: VerifyOrder | None) -> None:
        self._desk, self._orders = desk, orders
        self.spreading = Spreading(desk, orders, verify)

    async def ban(self, request: int, command: Ban, asker: Asker, signed: bytes) -> None:
        """Answers when it is in force here. Raises CommandRefused."""
        self._orders.given(signed, command, asker, "")
        try:
            self.spreading.give(signed)
        except Refused as error:
            raise NotAllowed("order", _why(error)) from None
        target = bytes.fromhex(command.target)
        self._desk.reply(
            request, BansBody([self._row(ban) for ban in self.spreading.known.all() if ban.target == target])
        )

    async def bans(self, request: int) -> None:
        """All that are known here."""
        self._desk.reply(request, BansBody([self._row(ban) for ban in self.spreading.known.all()]))

    def _row(self, ban: KnownBan) -> BanRow:
        until = self._orders.banned.get(ban.target, 0)
        is_in_force = until * 1_000 > self._desk.wall_ms
        return BanRow(ban.target.hex(), ban.until * 1_000, ban.reason, ban.by.hex(), ban.wall_ms, is_in_force)


def _why(error: Refused) -> str:
    if error.reason == "role":
        return "Only an admin bans: ask where the network was founded, or with the token of an admin."
    if error.reason == "own":
        return "That key or token is your own, or stands above you: whoever bans must stay able to take it back."
    return f"This ban is refused: {error}."
