"""Renewal of memberships: a node whose membership ends soon asks a desk, an agent that holds the authority's or an admin's key.

The desk notes itself on the ring under a name that no node has. It signs a new link for the same key and role, unless the key is
banned or was never counted; signing is the driver's. Users have theirs renewed by way of any agent. A desk that is away for a tenth
of a life harms nobody: who asks asks again.
Source: the admission spec, section 4.
"""

from typing import Final

import msgspec

from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import decode_link
from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker
from agiledart_node.desk.desk import CommandRefused, Desk
from agiledart_node.records.records import Records
from agiledart_node.wire.admission_bodies import RenewalBody
from agiledart_node.wire.commands import Renew
from agiledart_node.wire.effects import MembershipRenewed, SignRenewal
from agiledart_node.wire.events import BeRenewalDesk, RenewMembership
from agiledart_node.wire.renewal_messages import AskRenewal, RenewalIs

NAME: Final = "the renewal desk"
"""Where the record of the desk stands: among names of nodes, which have no blanks."""

PATIENCE: Final = Duration(20 * SECOND)


class Renewing:
    """Both sides at one node."""

    def __init__(self, desk: Desk, records: Records) -> None:
        self._desk, self._records = desk, records
        self._is_desk = False

    def open(self, event: BeRenewalDesk) -> None:
        """This node holds a key that may sign members; tell the ring."""
        self._is_desk = True
        self._desk.talks.begin(self._records.register(msgspec.structs.replace(self._desk.me, name=NAME)))

    def renew(self, event: RenewMembership) -> None:
        """Ask a desk; answered by one `MembershipRenewed`."""
        self._desk.talks.begin(self._renew(event))

    async def _renew(self, event: RenewMembership) -> None:
        answer = await self._ask_desk(event.chain, event.token)
        self._desk.emit(MembershipRenewed(answer.chain, answer.reason))

    async def renew_user(self, request: int, command: Renew, asker: Asker) -> None:
        """A user asks for itself; the answer is good for its key alone. Raises CommandRefused."""
        try:
            key = decode_link(command.chain[-1]).key if command.chain else b""
        except Refused:
            key = b""
        if not key or key != asker.key:
            raise CommandRefused("Only the holder of a membership renews it, over a link of its own.")
        answer = await self._ask_desk(command.chain, command.token)
        if not answer.chain:
            raise CommandRefused(f"This membership cannot be renewed: {answer.reason or 'the desk gave no reason'}.")
        try:
            until = decode_link(answer.chain[-1]).not_after
        except Refused as error:
            raise CommandRefused(f"The desk's answer is not good ({error}).") from None
        self._desk.reply(request, RenewalBody(until, [link.hex() for link in answer.chain]))

    async def _ask_desk(self, chain: tuple[bytes, ...], token: bytes) -> RenewalIs:
        """What the desk says, which may be this node."""
        number = self._desk.talks.number()
        if self._is_desk:
            return await self._signed(number, self._desk.me.node, AskRenewal(number, chain, token))
        noted = await self._records.node_named(NAME)
        if noted is None:
            return RenewalIs(number, (), "no agent with the network's authority key, or an admin's, is in the ring")
        peer = next((peer for peer in self._desk.known() if peer.node == noted.node), noted)
        answer = await self._desk.talks.ask(peer, AskRenewal(number, chain, token), number, RenewalIs, PATIENCE)
        return answer or RenewalIs(number, (), f"the desk at {peer.address or peer.node.short} does not answer")

    def asked(self, sender: Peer, message: AskRenewal) -> None:
        """Somebody's membership ends soon."""
        if not self._is_desk or self._desk.talks.is_full:
            self._desk.send(sender, RenewalIs(message.request, (), "this node signs no memberships now"))
        else:
            self._desk.talks.begin(self._sign(sender, message))

    async def _sign(self, sender: Peer, message: AskRenewal) -> None:
        self._desk.send(sender, await self._signed(self._desk.talks.number(), sender.node, message))

    async def _signed(self, number: int, node: NodeId, message: AskRenewal) -> RenewalIs:
        effect = SignRenewal(number, node, message.chain, message.token)
        answer = (await self._desk.driven(number, effect, PATIENCE)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            return RenewalIs(message.request, answer.result)
        return RenewalIs(message.request, (), answer.reason[:256] if isinstance(answer, Failed) else "the desk is busy")
