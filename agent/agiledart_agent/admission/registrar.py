"""Peer verifier of an agent's port. A key that joined by a token must have been registered as one of its uses.

    known      met before, also by an earlier process: admitted
    receipt    a known member has signed that it was registered: admitted, and the ring is asked in one case of sixteen
    otherwise  the ring is asked (`KeyPresented`) and answers within seconds, or the caller is refused

This is required beside certificate and chain. An admitted peer gets a receipt with our HELLO and shows it to the peers
that it meets next. Only callers are checked so: a peer that we dial was admitted by others. Source: the admission spec,
section 4; decision 0004.
"""

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from agiledart_agent.admission.members import RegisteredKeys
from agiledart_agent.identity.identity import Identity
from agiledart_kernel.errors import Refused
from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import Grant
from agiledart_kernel.limits import MAX_RECEIPT_BYTES
from agiledart_kernel.registrations import (
    RegistrationReceipt,
    TokenRecord,
    inviter,
    member_key,
    sign_receipt,
    verify_receipt,
    verify_token_record,
)
from agiledart_node.wire.effects import KeyDecision
from agiledart_node.wire.events import KeyPresented
from agiledart_transport.certificates import check_signature
from agiledart_transport.local_peer_verifier import LocalPeerVerifier
from agiledart_transport.peer_verifier import PeerInfo

ASK_SECONDS: Final = 2.5
"""Time for the ring to answer: less than a caller waits for our HELLO."""

ONE_IN: Final = 16

Spawn = Callable[[Coroutine[Any, Any, None]], None]


class RegisteredPeerVerifier:
    """A `PeerVerifier` that also checks registrations.

    Args:
        local: verifies certificate and chain.
        feed: takes events for the node; returns False when there is no node yet.
        spawn: runs a coroutine in the background.
        changed: called when the set of known keys has changed.
        denied: called for a key that is not registered, and may have links.
    """

    def __init__(
        self,
        local: LocalPeerVerifier,
        identity: Identity,
        feed: Callable[[KeyPresented], bool],
        spawn: Spawn,
        changed: Callable[[], None],
        denied: Callable[[bytes, str], None],
    ) -> None:
        self._local, self._identity, self._feed, self._spawn = local, identity, feed, spawn
        self._changed, self._denied = changed, denied
        self.members = RegisteredKeys()
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[KeyDecision]] = {}
        self._asking: dict[tuple[bytes, bytes], asyncio.Future[None]] = {}
        self._counted: dict[bytes, int] = {}  # of keys that get a receipt with our HELLO: number of the use

    async def verify_peer(self, certificate: bytes, hello: Hello, service: str, *, serves: bool = False) -> PeerInfo:
        """Return the verified peer. Raises `Refused`."""
        peer = self._local.verify(certificate, hello, service, serves=serves)
        if serves:
            self._keep(hello.welcome)
        else:
            await self.admit(peer.grant, hello)
        return peer

    def is_known(self, grant: Grant) -> bool:
        """Return whether this grant's holder may be admitted without a question to the ring."""
        return not grant.invitation or (grant.invitation, member_key(grant)) in self.members

    async def admit(self, grant: Grant, hello: Hello) -> None:
        """Raise `Refused` (one of `registrations.REFUSALS`) unless the holder of this grant is registered, or is now."""
        if self.is_known(grant):
            return
        token, key = grant.invitation, member_key(grant)
        record = self._record(grant, hello.token)
        counted_at = self._counted_at(hello.receipt, token, key)
        if counted_at and record is not None:
            self._note(token, key, counted_at)
            if secrets.randbelow(ONE_IN) == 0:
                self._spawn(self._doubt(grant, record, counted_at))
            return
        # The ring is asked once about a peer that opens several links at the same time.
        pending = self._asking.get((token, key))
        if pending is not None:
            await asyncio.wait([pending])
            if self.is_known(grant):
                return
        mine = self._asking[token, key] = asyncio.get_running_loop().create_future()
        try:
            verdict = await self._ask(grant, record, counted_at)
        finally:
            mine.set_result(None)
            if self._asking.get((token, key)) is mine:
                del self._asking[token, key]
        if verdict.reason:
            raise Refused(verdict.reason, verdict.detail)
        self._counted[key] = verdict.number
        self._note(token, key, verdict.wall_seconds)

    def on_key_checked(self, effect: KeyDecision) -> None:
        """Take the ring's answer."""
        if (waiting := self._asked.get(effect.request)) is not None and not waiting.done():
            waiting.set_result(effect)

    def welcome(self, peer: PeerInfo) -> bytes:
        """Return a receipt for an admitted agent that presents none; empty: it needs none."""
        grant = peer.grant
        if grant.role != "agent" or not grant.invitation or peer.hello.receipt or not self.is_known(grant):
            return b""
        at = self.members.when(grant.invitation, grant.key)
        number = self._counted.pop(grant.key, 1)
        identity = self._identity
        receipt = RegistrationReceipt(identity.network, grant.invitation, grant.key, number, at)
        raw = sign_receipt(identity.key.sign, identity.chain, receipt)
        return raw if len(raw) <= MAX_RECEIPT_BYTES else b""

    # ---- inside

    async def _ask(self, grant: Grant, record: TokenRecord | None, counted_at: int) -> KeyDecision:
        token, request = grant.invitation, next(self._numbers)
        waiting = self._asked[request] = asyncio.get_running_loop().create_future()
        allowed, join_before = (record.uses, record.join_before) if record is not None else (0, 0)
        met = KeyPresented(
            request, token, member_key(grant), grant.role, grant.scope, allowed, join_before, counted_at,
            self.members.of(token),
        )  # fmt: skip
        try:
            if not self._feed(met):
                return KeyDecision(request, "unregistered", "this agent has just started; try again")
            return await asyncio.wait_for(waiting, ASK_SECONDS)
        except TimeoutError:
            return KeyDecision(request, "unregistered", "the ring did not answer in time; try again")
        finally:
            del self._asked[request]

    async def _doubt(self, grant: Grant, record: TokenRecord, counted_at: int) -> None:
        """Ask the ring about a receipt that was accepted."""
        verdict = await self._ask(grant, record, counted_at)
        if verdict.reason not in ("", "unregistered"):
            key = member_key(grant)
            self.members.forget(grant.invitation, key)
            self._changed()
            self._denied(key, verdict.reason)

    def _record(self, grant: Grant, raw: bytes) -> TokenRecord | None:
        if not raw:
            return None
        return verify_token_record(raw, grant.invitation, inviter(self._identity.network, grant), check_signature)

    def _counted_at(self, raw: bytes, token: bytes, key: bytes) -> int:
        """Return the wall time at which a member known here had this key registered; 0: it has no valid receipt."""
        if not raw:
            return 0
        try:
            receipt, signer = verify_receipt(self._identity.network, raw, check_signature, self._local.banned)
        except Refused:
            return 0
        is_ours = signer.key == self._identity.public_key
        if (receipt.token, receipt.key) != (token, key) or not (is_ours or self.is_known(signer)):
            return 0
        return receipt.wall_seconds

    def _note(self, token: bytes, key: bytes, wall_seconds: int) -> None:
        if self.members.note(token, key, wall_seconds):
            self._changed()

    def _keep(self, raw: bytes) -> None:
        """Store a receipt that we were given, if it is for our key."""
        identity = self._identity
        if not raw or identity.receipt:
            return
        try:
            receipt, _ = verify_receipt(identity.network, raw, check_signature, self._local.banned)
            grant = identity.grant()
        except Refused:
            return
        if receipt.key == identity.public_key and receipt.token == grant.invitation:
            identity.keep_receipt(raw)
            self._note(receipt.token, receipt.key, min(receipt.wall_seconds, int(time.time())))
