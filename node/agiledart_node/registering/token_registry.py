"""Counting keys that come by a token: each is noted once in the token's record on the ring, before anybody lets it in.

The driver tells of a key that it does not know (`KeyPresented`) and is answered once (`KeyDecision`). Keys of one token that come while its
record is being written go with the next write of it, so a crowd at one node costs as many writes as the ring takes turns. A write
whose answer is lost is found done when the record is read again: nobody is counted twice. Source: the admission spec, section 4.
"""

import msgspec

from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import MILLISECOND, SECOND, Duration, Instant
from agiledart_kernel.randomness import RandomStream
from agiledart_kernel.registrations import closed_token_target
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.command_verifier import CommandVerifier
from agiledart_node.records.records import Records
from agiledart_node.registering.observations import TokenOverused
from agiledart_node.registering.token_uses import (
    LIST_CODEC,
    LIST_KEY,
    USES_CODEC,
    TokenUseDecision,
    TokenUses,
    decoded_uses,
    merged_list,
    register_use,
    uses_key,
)
from agiledart_node.wire.admission_responses import TokenMember, TokenRow, TokensResponse
from agiledart_node.wire.effects import KeyDecision
from agiledart_node.wire.events import KeyPresented, TokenKnown
from agiledart_overlay.wire.effects import RecordAnswer

ANSWER_TIMEOUT = Duration(5 * SECOND)
"""How long a key may wait for its answer; whoever brought it has hung up by then."""

MAX_WAITING = 1_024
"""Keys of one token that wait at one node."""

_PAUSE_NS = 100 * MILLISECOND
_JITTER_NS = 10 * MILLISECOND
"""Nodes that write to one record at one time do not go on in step."""


class TokenRegistry:
    """Counts keys at one node."""

    def __init__(self, context: NodeContext, records: Records, verifier: CommandVerifier, random: RandomStream) -> None:
        self._context, self._records, self._verifier, self._random = context, records, verifier, random
        self._waiting: dict[bytes, list[tuple[Instant, KeyPresented]]] = {}
        self._overused: dict[bytes, int] = {}
        self._listing: dict[bytes, bool] = {}

    def met(self, event: KeyPresented) -> None:
        """Somebody shows this key's grant here."""
        waiting = self._waiting.get(event.token)
        if not self._context.overlay.joined:
            self._answer(event, TokenUseDecision("unregistered", "this node is not in the ring yet"))
        elif waiting is not None and len(waiting) < MAX_WAITING:
            waiting.append((Instant(self._context.now + ANSWER_TIMEOUT), event))
        elif waiting is not None or self._context.requests.is_full:
            self._answer(event, TokenUseDecision("unregistered", "this node is busy"))
        else:
            self._waiting[event.token] = [(Instant(self._context.now + ANSWER_TIMEOUT), event)]
            self._context.requests.begin(self._work(event.token))

    async def _work(self, token: bytes) -> None:
        """Count until nobody waits."""
        answer = await self._records.read(uses_key(token))
        is_new = False
        while waiting := self._still_waiting(token):
            before = decoded_uses(token, answer.value) if answer.ok or answer.reason == "conflict" else None
            if before is None and answer.reason != "missing":
                await self._pause(_PAUSE_NS)
                answer = await self._records.read(uses_key(token))
                continue
            is_new |= before is None
            uses, verdicts = self._register_uses(before, [event for _, event in waiting])
            if uses is not None and uses != before:
                answer = await self._records.store(uses_key(token), answer.version, USES_CODEC.encode(uses))
                if not answer.ok:
                    await self._pause(0 if answer.reason == "conflict" else _PAUSE_NS)
                    if answer.reason != "conflict":
                        answer = await self._records.read(uses_key(token))
                    continue
                answer = msgspec.structs.replace(answer, value=USES_CODEC.encode(uses))
            del self._waiting[token][: len(waiting)]
            for (_, event), verdict in zip(waiting, verdicts, strict=True):
                self._answer(event, verdict)
            if uses is not None:
                self._report(uses)
                if is_new:
                    self.list_token(TokenKnown(token, uses.join_before))
        del self._waiting[token]

    def _still_waiting(self, token: bytes) -> list[tuple[Instant, KeyPresented]]:
        """Those whose patience is not over; the others are told."""
        late = [event for deadline, event in self._waiting[token] if deadline <= self._context.now]
        self._waiting[token] = [one for one in self._waiting[token] if one[0] > self._context.now]
        for event in late:
            self._answer(event, TokenUseDecision("unregistered", "the ring did not answer in time; try again"))
        return self._waiting[token][:]

    def _register_uses(
        self, uses: TokenUses | None, events: list[KeyPresented]
    ) -> tuple[TokenUses | None, list[TokenUseDecision]]:
        now = self._context.wall_ms // 1_000
        verdicts = []
        for event in events:
            is_closed = self._verifier.banned.get(closed_token_target(event.token), 0) > now
            after, verdict = register_use(uses, event, now, is_closed=is_closed)
            if uses is not None or after.members:
                uses = after
            verdicts.append(verdict)
        return uses, verdicts

    def _answer(self, event: KeyPresented, verdict: TokenUseDecision) -> None:
        self._context.emit(KeyDecision(event.request, *verdict))

    async def _pause(self, at_least: int) -> None:
        await self._context.requests.pause(Duration(at_least + 1 + int(self._random.uniform() * _JITTER_NS)))

    def _report(self, uses: TokenUses) -> None:
        if uses.excess and self._overused.get(uses.token) != uses.excess:
            self._overused[uses.token] = uses.excess
            self._context.observe(TokenOverused(uses.token.hex(), uses.allowed, len(uses.members)))

    # ---- the list

    def list_token(self, event: TokenKnown) -> None:
        """A token was made here, or used for the first time."""
        if event.token not in self._listing and not self._context.requests.is_full:
            self._listing[event.token] = True
            self._context.requests.begin(self._list(event))

    async def _list(self, event: TokenKnown) -> None:
        deadline = self._context.now + self._context.config.record_deadline_ns
        try:
            if event.allowed:
                uses = TokenUses(event.token, event.allowed, event.join_before, event.role, event.scope)
                await self._records.store(uses_key(event.token), 0, USES_CODEC.encode(uses))  # else its first use does
            while self._context.now < deadline:
                answer = await self._records.read(LIST_KEY)
                known = self._listed(answer)
                listed = merged_list(known, ((event.join_before, event.token),))
                if answer.ok and listed == known:
                    return
                if answer.ok or answer.reason == "missing":
                    stored = await self._records.store(LIST_KEY, answer.version, LIST_CODEC.encode(listed))
                    if stored.ok:
                        return
                await self._pause(_PAUSE_NS)
        finally:
            del self._listing[event.token]

    def _listed(self, answer: RecordAnswer) -> tuple[tuple[int, bytes], ...]:
        if not answer.ok:
            return ()
        try:
            return LIST_CODEC.decode(answer.value)
        except RemoteProtocolError:
            self._context.drop("record form")
            return ()

    async def tokens(self, request: int) -> None:
        """All tokens and who came by them; raises CommandRefused."""
        answer = await self._records.read(LIST_KEY)
        if not answer.ok and answer.reason != "missing":
            raise CommandRefused(
                f"The list of tokens cannot be read: the ring did not answer ({answer.reason}). Try again."
            )
        rows = []
        for join_before, token in self._listed(answer):
            found = await self._records.read(uses_key(token))
            uses = decoded_uses(token, found.value) if found.ok else None
            if uses is not None:
                self._report(uses)
                rows.append(self._row(uses))
            elif found.reason == "missing":
                rows.append(TokenRow(token.hex(), "", "", 0, 0, 0, join_before * 1_000, "open", []))
        self._context.reply(request, TokensResponse(rows))

    def _row(self, uses: TokenUses) -> TokenRow:
        now, banned = self._context.wall_ms // 1_000, self._verifier.banned
        used = len(uses.members)
        state = "open"
        if banned.get(uses.token, 0) > now:
            state = "banned"
        elif banned.get(closed_token_target(uses.token), 0) > now:
            state = "revoked"
        elif used >= uses.allowed:
            state = "used up"
        elif now > uses.join_before:
            state = "expired"
        members = [
            TokenMember(use.key.hex(), use.wall_seconds * 1_000, banned.get(use.key, 0) > now) for use in uses.members
        ]
        return TokenRow(
            uses.token.hex(),
            uses.role,
            uses.scope,
            uses.allowed,
            used,
            uses.excess,
            uses.join_before * 1_000,
            state,
            members,
        )
