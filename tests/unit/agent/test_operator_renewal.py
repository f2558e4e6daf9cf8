"""Renewal of operators' memberships: by the service that renews their nodes, or a warning that names the command."""

import asyncio
import io
import time
from collections.abc import Callable
from pathlib import Path

from agiledart_agent.admission.renewal import MembershipRenewer
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.operator_identity import OperatorIdentity, operator_of, stored_operator
from agiledart_agent.identity.tokens import Token, create_token, parse_token, redeem
from agiledart_kernel.errors import Refused
from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import Grant, Role, decode_link
from agiledart_kernel.machine import Completed, Event, Failed
from agiledart_kernel.node_id import node_id_of_key
from agiledart_node.wire.effects import MembershipRenewed, SignRenewal
from agiledart_node.wire.events import RenewMembership
from agiledart_transport.local_peer_verifier import LocalPeerVerifier

VALID, SPENT = 1_000, 950


class Renewals:
    """A founder that renews, and members whose memberships are in their last tenth."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.began = int(time.time()) - SPENT
        self.founder = Identity.load_or_create(folder / "a1", lambda: self.began)
        self.founder.create_network()
        self.founder.keep_network()
        self.founder.wall_seconds = time.time
        self.uncounted: set[bytes] = set()
        self.banned: set[bytes] = set()
        self.asked: list[SignRenewal] = []
        self.log = io.StringIO()
        self.later = 0
        self.renewed = asyncio.Event()
        self._replies: list[Event] = []
        self._service = self._renewer(self.founder, OperatorIdentity(self.founder), self._replies.append)

    def token(self, operator: Role | str) -> Token:
        made = create_token(
            self.founder.issuer(), now_seconds=self.began, addresses=("pi1:9464",), role="agent", member_for=VALID,
            operator=operator,
        )  # fmt: skip
        return parse_token(made)

    def member(self, name: str, token: Token) -> tuple[Identity, OperatorIdentity]:
        identity = Identity.load_or_create(self._folder / name, lambda: self.began)
        chain = redeem(token, identity.public_key, self.began)
        identity.join_network(token.network, chain, token.signed_record)
        identity.keep_network()
        operator = operator_of(identity, token)
        identity.wall_seconds = time.time
        return identity, operator

    def renewer(
        self, identity: Identity, operator: OperatorIdentity, host: tuple[bytes, ...] = ()
    ) -> MembershipRenewer:
        """Return a member's side, whose requests the founder's side answers. `host`: the chain that it shows instead."""

        def feed(event: Event) -> None:
            assert isinstance(event, RenewMembership)
            shown = host if host and event.host else event.host
            node = node_id_of_key(identity.public_key)
            self._answers.append(
                asyncio.ensure_future(self._sign(made, event, SignRenewal(1, node, event.chain, event.token, shown)))
            )

        made = self._renewer(identity, operator, feed)
        self._answers: list[asyncio.Future[None]] = []
        return made

    async def _sign(self, member: MembershipRenewer, event: RenewMembership, effect: SignRenewal) -> None:
        self.asked.append(effect)
        await self._service.sign(effect)
        reply = self._replies.pop()
        if isinstance(reply, Completed):
            assert isinstance(reply.result, tuple)
            member.on_renewed(MembershipRenewed(event.request, reply.result))
        else:
            assert isinstance(reply, Failed)
            member.on_renewed(MembershipRenewed(event.request, (), reply.reason))

    def _renewer(
        self, identity: Identity, operator: OperatorIdentity, feed: Callable[[Event], None]
    ) -> MembershipRenewer:
        verifier = LocalPeerVerifier(self.founder.network, lambda: time.time() + self.later, banned=self.banned)
        return MembershipRenewer(
            identity, verifier, self._admit, AgentLog("console", stream=self.log), feed, self.renewed.set, operator
        )

    async def _admit(self, grant: Grant, hello: Hello) -> None:
        if grant.invitation and (grant.key in self.uncounted or not hello.token):
            raise Refused("unregistered")


def until(chain: tuple[bytes, ...]) -> int:
    return decode_link(chain[-1]).not_after


def test_an_operator_is_renewed_with_its_node_and_again_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        renewals = Renewals(tmp_path)
        identity, operator = renewals.member("a2", renewals.token("submitter"))
        key, before = operator.principal.key, until(operator.chain)
        is_due = operator.is_to_be_renewed
        assert is_due
        renewer = renewals.renewer(identity, operator)
        for _ in range(2):  # the second one brings chains without a token
            assert await renewer.renew() == ""
            assert (operator.principal.key, operator.principal.role) == (key, "submitter")
            assert until(operator.chain) >= before + SPENT <= until(identity.chain)
            assert not operator.is_to_be_renewed
            renewals.later += 2
        stored = stored_operator(identity)
        assert stored is not None
        assert stored.chain == operator.chain

    asyncio.run(scenario())


async def renewed_in_time(
    renewals: Renewals, identity: Identity, operator: OperatorIdentity, **more: tuple[bytes, ...]
) -> str:
    """Let a member look at its memberships once. Return the log."""
    looking = asyncio.ensure_future(renewals.renewer(identity, operator, **more).check_forever())
    await renewals.renewed.wait()
    looking.cancel()
    return renewals.log.getvalue()


def test_a_node_renews_its_operator_before_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        renewals = Renewals(tmp_path)
        identity, operator = renewals.member("a2", renewals.token("reader"))
        joined = identity.chain
        log = await renewed_in_time(renewals, identity, operator)
        assert renewals.asked[0].host == joined
        assert "the membership of this machine's operator was renewed" in log
        assert "identity operator" not in log
        assert until(operator.chain) > until(joined)

    asyncio.run(scenario())


def test_an_admin_gets_a_warning_that_names_the_command(tmp_path: Path) -> None:
    async def scenario() -> None:
        renewals = Renewals(tmp_path)
        identity, operator = renewals.member("a2", renewals.token("admin"))
        before = operator.chain
        log = await renewed_in_time(renewals, identity, operator)
        assert "operator ends in 0.0 days. With a user's token:  agiledart identity operator @FILE" in log
        assert operator.chain == before
        assert not any(effect.host for effect in renewals.asked)

    asyncio.run(scenario())


def test_a_node_vouches_for_no_operator_of_another_token(tmp_path: Path) -> None:
    async def scenario() -> None:
        renewals = Renewals(tmp_path)
        identity, _ = renewals.member("a2", renewals.token(""))
        _, others = renewals.member("a3", renewals.token("submitter"))
        before = others.chain
        log = await renewed_in_time(renewals, identity, others)
        assert "this node's membership does not vouch for its operator" in log
        assert others.chain == before

    asyncio.run(scenario())


def test_a_node_shows_no_chain_of_another_node(tmp_path: Path) -> None:
    async def scenario() -> None:
        renewals = Renewals(tmp_path)
        identity, _ = renewals.member("a2", renewals.token(""))
        victim, others = renewals.member("a3", renewals.token("submitter"))
        before = others.chain
        log = await renewed_in_time(renewals, identity, others, host=victim.chain)
        assert "could not be renewed: another key" in log
        assert others.chain == before

    asyncio.run(scenario())


def test_a_banned_operator_and_that_of_an_uncounted_node_are_not_renewed(tmp_path: Path) -> None:
    async def scenario() -> None:
        renewals = Renewals(tmp_path)
        banned_at, banned = renewals.member("a2", renewals.token("submitter"))
        uncounted_at, uncounted = renewals.member("a3", renewals.token("submitter"))
        renewals.banned.add(banned.principal.key)
        renewals.uncounted.add(uncounted_at.public_key)
        before = (banned.chain, uncounted.chain)
        assert await renewals.renewer(banned_at, banned).renew() == ""
        assert await renewals.renewer(uncounted_at, uncounted).renew() == "unregistered"
        assert (banned.chain, uncounted.chain) == before

    asyncio.run(scenario())
