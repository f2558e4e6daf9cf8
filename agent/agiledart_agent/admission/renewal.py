"""Renewal of this agent's membership, and of others' where this agent has a key that may sign.

An agent asks a renewal service in the last tenth of its membership. It presents the renewed membership with every new
HELLO. A link that was opened before ends with the old membership and is reopened; its rows are not lost (decision
0023).
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Final

from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.operator_identity import OperatorIdentity
from agiledart_kernel.errors import AgileDartError, OperationFailed, Refused, RemoteProtocolError
from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import Grant, decode_link, sign_link, verify_chain
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import node_id_of_key
from agiledart_node.wire.effects import MembershipRenewed, SignRenewal
from agiledart_node.wire.events import EnableRenewalService, RenewMembership
from agiledart_transport.certificates import check_signature
from agiledart_transport.local_peer_verifier import LocalPeerVerifier

PART: Final = 10
"""Share of its validity in which a membership is renewed: the last tenth."""

RENEWED: Final = ("agent", "submitter", "reader")
"""Roles whose memberships the service renews. A holder of a key above decides each time about admins."""

TRY_SECONDS: Final = 3_600.0
MIN_TRY_SECONDS: Final = 0.5
WARN_SECONDS: Final = 30 * 86_400


def renewed_chain(identity: Identity, grant: Grant, now: int) -> tuple[bytes, ...]:
    """Return a membership for the same key and role, as long as the last one and never longer than the signer's.

    Raises `OperationFailed`.
    """
    issuer = identity.issuer()
    not_before, not_after = now, now + (grant.not_after - grant.not_before)
    if issuer.chain:
        above = decode_link(issuer.chain[-1])
        not_before, not_after = max(not_before, above.not_before), min(not_after, above.not_after)
    return sign_link(
        issuer.network, issuer.sign, issuer.chain, key=grant.key, use="act", role=grant.role,
        not_before=not_before, not_after=not_after, scope=grant.scope, quota=grant.quota,
    )  # fmt: skip


class MembershipRenewer:
    """Both sides of renewal at this agent.

    Args:
        admit: raises `Refused` unless a key that joined by a token is registered.
        feed: takes events for the node.
        renewed: called when the chain has changed.
        operator: of this machine.
    """

    def __init__(
        self,
        identity: Identity,
        verifier: LocalPeerVerifier,
        admit: Callable[[Grant, Hello], Awaitable[None]],
        log: AgentLog,
        feed: Callable[[Event], None],
        renewed: Callable[[], None],
        operator: OperatorIdentity,
    ) -> None:
        self._identity, self._verifier, self._admit, self._log = identity, verifier, admit, log
        self._feed, self._renewed, self._operator = feed, renewed, operator
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[MembershipRenewed]] = {}

    def open(self) -> None:
        """Offer the renewal service, where this agent has the keys for it."""
        try:
            self._identity.issuer()
        except OperationFailed:
            return
        self._feed(EnableRenewalService())

    async def check_forever(self) -> None:
        """Renew in the last tenth. Check again now and then, since clocks jump."""
        while True:
            await self._check_operator()
            left, validity = self._left()
            if left > validity / PART:
                await asyncio.sleep(min(TRY_SECONDS, max(MIN_TRY_SECONDS, left - validity / PART)))
                continue
            reason = await self.renew()
            if reason and left < WARN_SECONDS:
                days = max(0.0, left) / 86_400
                text = f"this node's membership ends in {days:.1f} days and could not be renewed: {reason}"
                self._log.warning("membership.expiring", text, days=round(days, 2))
            left, validity = self._left()
            await asyncio.sleep(min(TRY_SECONDS, max(MIN_TRY_SECONDS, validity / PART / 10)))

    async def _check_operator(self) -> None:
        """Have the operator's membership signed again in time; report that it ends soon when it could not be."""
        reason = ""
        try:
            self._operator.renew()
            if self._operator.is_to_be_renewed:
                reason = await self._renew_operator()
        except OperationFailed as error:
            reason = str(error)
        left = (self._operator.not_after or time.time() + 2 * WARN_SECONDS) - time.time()
        if left < WARN_SECONDS and (reason or not self._operator.is_renewable):
            days = max(0.0, left) / 86_400
            could_not = f" and could not be renewed: {reason}" if reason else ""
            text = (
                f"the membership of this machine's operator ends in {days:.1f} days{could_not}. With a user's token:"
                "  agiledart identity operator @FILE"
            )
            self._log.warning("operator.expiring", text, days=round(days, 2))

    async def _renew_operator(self) -> str:
        """Ask a renewal service for the operator. Return the reason of a failure, or an empty string."""
        identity = self._identity
        answer = await self._ask(self._operator.chain, identity.chain)
        if answer.chain:
            until = self._operator.take(answer.chain)
            self._log.info("operator.renewed", "the membership of this machine's operator was renewed", until=until)
        return "" if answer.chain else answer.reason or "the renewal service gave no reason"

    async def renew(self) -> str:
        """Ask a renewal service now, first for the operator: this node's present chain vouches for it.

        Return the reason of a failure, or an empty string.
        """
        if self._operator.is_renewable:
            with contextlib.suppress(OperationFailed):
                await self._renew_operator()
        answer = await self._ask(self._identity.chain)
        return self._take(answer.chain) if answer.chain else answer.reason or "the renewal service gave no reason"

    async def _ask(self, chain: tuple[bytes, ...], host: tuple[bytes, ...] = ()) -> MembershipRenewed:
        number = next(self._numbers)
        waiting: asyncio.Future[MembershipRenewed] = asyncio.get_running_loop().create_future()
        self._answers[number] = waiting
        try:
            self._feed(RenewMembership(number, chain, self._identity.token, host))
            return await waiting
        finally:
            del self._answers[number]

    def on_renewed(self, effect: MembershipRenewed) -> None:
        """Take the answer of a renewal service."""
        if (waiting := self._answers.get(effect.request)) is not None and not waiting.done():
            waiting.set_result(effect)

    def _take(self, chain: tuple[bytes, ...]) -> str:
        identity = self._identity
        try:
            grant = verify_chain(identity.network, chain, identity.public_key, int(time.time()), check_signature)
        except Refused as error:
            return f"the answer of the renewal service is not valid ({error})"
        if grant.role != "agent" or grant.scope or grant.not_after <= decode_link(identity.chain[-1]).not_after:
            return "the renewal service cannot sign for longer: its own membership ends"
        identity.renew(chain)
        self._log.info("membership.renewed", "this node's membership was renewed", until=grant.not_after)
        self._renewed()
        return ""

    def _left(self) -> tuple[float, float]:
        link = decode_link(self._identity.chain[-1])
        return link.not_after - time.time(), link.not_after - link.not_before

    # ---- the renewal service

    async def sign(self, effect: SignRenewal) -> None:
        """Sign the renewal that a member requests."""
        try:
            chain = await self._signed(effect)
        except (AgileDartError, RemoteProtocolError) as error:
            self._log.refused(error.reason if isinstance(error, RemoteProtocolError) else "renewal", effect.node.short)
            self._feed(Failed(effect.request, str(error)))
        else:
            self._feed(Completed(effect.request, chain))

    async def _signed(self, effect: SignRenewal) -> tuple[bytes, ...]:
        now = self._verifier.now_seconds()
        key = decode_link(effect.chain[-1]).key if effect.chain else b""
        grant = verify_chain(self._identity.network, effect.chain, key, now, check_signature, self._verifier.banned)
        if grant.role not in RENEWED:
            raise Refused("role", f"a membership as {grant.role} is not renewed: make another token")
        if effect.host:
            await self._check_host(effect, grant, now)
            return renewed_chain(self._identity, grant, now)
        # An agent asks for itself. A user's request comes through an agent, which has no use for the answer without the
        # user's key.
        if grant.role == "agent" and node_id_of_key(key) != effect.node:
            raise Refused("another key")
        await self._admit(grant, Hello(token=effect.token))
        return renewed_chain(self._identity, grant, now)

    async def _check_host(self, effect: SignRenewal, operator: Grant, now: int) -> None:
        """Raise `Refused` unless the requester is a counted agent whose token has invited this operator.

        Uses of the token are counted by agents alone. The second invitation is for the same key as theirs.
        """
        key = decode_link(effect.host[-1]).key
        host = verify_chain(self._identity.network, effect.host, key, now, check_signature, self._verifier.banned)
        if host.role != "agent" or node_id_of_key(key) != effect.node:
            raise Refused("another key")
        await self._admit(host, Hello(token=effect.token))
        if operator.invitation and _invited_key(operator) != _invited_key(host):
            raise Refused("another token", "this node's membership does not vouch for its operator")


def _invited_key(grant: Grant) -> bytes:
    """Return the key that the grant's invitation was for; empty: it came by none."""
    return grant.keys[grant.links.index(grant.invitation)] if grant.invitation else b""
