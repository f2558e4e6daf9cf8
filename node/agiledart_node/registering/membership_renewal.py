"""Renewal of memberships: a node whose membership ends soon asks an agent with the authority's or an admin's key.

That agent, the renewal service, registers itself on the ring under a name that no node has. It signs a new link for the same key
and role, unless the key is banned or was never counted; the driver signs. Users renew theirs through any agent. A service that is
away for a tenth of a membership's duration does no harm: requesters repeat their request.
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
from agiledart_kernel.permissions import Principal
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.records import Records
from agiledart_node.wire.admission_responses import RenewalResponse
from agiledart_node.wire.commands import RenewUserMembership
from agiledart_node.wire.effects import MembershipRenewed, SignRenewal
from agiledart_node.wire.events import EnableRenewalService, RenewMembership
from agiledart_node.wire.renewal_messages import RenewalReply, RequestRenewal

NAME: Final = "the renewal desk"
"""Name of the service's record among the names of nodes, which contain no blanks."""

RENEWAL_TIMEOUT: Final = Duration(20 * SECOND)


class MembershipRenewal:
    """Both sides of renewals at one node."""

    def __init__(self, context: NodeContext, records: Records) -> None:
        self._context, self._records = context, records
        self._is_renewal_service = False

    def open(self, event: EnableRenewalService) -> None:
        """Register this node as renewal service: it has a key that may sign members."""
        self._is_renewal_service = True
        self._context.requests.begin(self._records.register(msgspec.structs.replace(self._context.me, name=NAME)))

    def renew(self, event: RenewMembership) -> None:
        """Ask a renewal service; answered by one `MembershipRenewed`."""
        self._context.requests.begin(self._renew(event))

    async def _renew(self, event: RenewMembership) -> None:
        answer = await self._request_renewal(event.chain, event.token, event.host)
        self._context.emit(MembershipRenewed(event.request, answer.chain, answer.reason))

    async def renew_user(self, request: int, command: RenewUserMembership, principal: Principal) -> None:
        """Renew a user's membership; the answer is valid for its key alone. Raises CommandRefused."""
        try:
            key = decode_link(command.chain[-1]).key if command.chain else b""
        except Refused:
            key = b""
        if not key or key != principal.key:
            raise CommandRefused("A membership can be renewed only with its own key, over a link of that key.")
        answer = await self._request_renewal(command.chain, command.token)
        if not answer.chain:
            raise CommandRefused(
                f"This membership cannot be renewed: {answer.reason or 'the renewal service gave no reason'}."
            )
        try:
            until = decode_link(answer.chain[-1]).not_after
        except Refused as error:
            raise CommandRefused(f"The renewal service's answer is invalid ({error}).") from None
        self._context.reply(request, RenewalResponse(until, [link.hex() for link in answer.chain]))

    async def _request_renewal(
        self, chain: tuple[bytes, ...], token: bytes, host: tuple[bytes, ...] = ()
    ) -> RenewalReply:
        """Return the answer of the renewal service, which may be this node."""
        number = self._context.requests.number()
        request = RequestRenewal(number, chain, token, host)
        if self._is_renewal_service:
            return await self._signed(number, self._context.me.node, request)
        registered = await self._records.node_named(NAME)
        if registered is None:
            return RenewalReply(number, (), "no agent with the network's authority key, or an admin's, is in the ring")
        peer = next((peer for peer in self._context.known() if peer.node == registered.node), registered)
        answer = await self._context.requests.ask(peer, request, number, RenewalReply, RENEWAL_TIMEOUT)
        return answer or RenewalReply(
            number, (), f"the renewal service at {peer.address or peer.node.short} does not answer"
        )

    def asked(self, sender: Peer, message: RequestRenewal) -> None:
        """Answer a request to renew a membership."""
        if not self._is_renewal_service or self._context.requests.is_full:
            self._context.send(sender, RenewalReply(message.request, (), "this node signs no memberships now"))
        else:
            self._context.requests.begin(self._sign(sender, message))

    async def _sign(self, sender: Peer, message: RequestRenewal) -> None:
        self._context.send(sender, await self._signed(self._context.requests.number(), sender.node, message))

    async def _signed(self, number: int, node: NodeId, message: RequestRenewal) -> RenewalReply:
        effect = SignRenewal(number, node, message.chain, message.token, message.host)
        answer = (await self._context.ask_driver(number, effect, RENEWAL_TIMEOUT)).get(number)
        if isinstance(answer, Completed) and isinstance(answer.result, tuple):
            return RenewalReply(message.request, answer.result)
        return RenewalReply(
            message.request, (), answer.reason[:256] if isinstance(answer, Failed) else "the renewal service is busy"
        )
