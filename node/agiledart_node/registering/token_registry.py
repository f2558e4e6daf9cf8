"""Counts of keys that join with a token: each is recorded once in the token's record on the ring before any node admits it.

The driver reports an unknown key (`KeyPresented`) and is answered once (`KeyDecision`). Keys of one token that arrive during a
write of its record are added by the next write, so a crowd at one node needs few writes. A write whose answer is lost is found when
the record is read again: no key is counted twice. Source: the admission spec, section 4.
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
"""Time limit for the decision on a key; its connection is closed by then."""

MAX_WAITING = 1_024
"""Keys of one token that wait at one node."""

_PAUSE_NS = 100 * MILLISECOND
_JITTER_NS = 10 * MILLISECOND
"""Random delay, so that simultaneous writers of one record do not collide again."""


class TokenRegistry:
    """Counts keys at one node."""

    def __init__(self, context: NodeContext, records: Records, verifier: CommandVerifier, random: RandomStream) -> None:
        self._context, self._records, self._verifier, self._random = context, records, verifier, random
        self._waiting: dict[bytes, list[tuple[Instant, KeyPresented]]] = {}
        self._overused: dict[bytes, int] = {}
        self._listing: dict[bytes, bool] = {}

    def met(self, event: KeyPresented) -> None:
        """Decide on a key that presents its grant here."""
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
        """Count keys until none waits."""
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
        """Return the keys whose timeout has not passed; refuse the others."""
        late = [event for deadline, event in self._waiting[token] if deadline <= self._context.now]
        self._waiting[token] = [entry for entry in self._waiting[token] if entry[0] > self._context.now]
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

    # ---- the list of tokens

    def list_token(self, event: TokenKnown) -> None:
        """Add a token to the list after its creation or first use."""
        if event.token not in self._listing and not self._context.requests.is_full:
            self._listing[event.token] = True
            self._context.requests.begin(self._list(event))

    async def _list(self, event: TokenKnown) -> None:
        deadline = self._context.now + self._context.config.record_deadline_ns
        try:
            if event.allowed:
                uses = TokenUses(event.token, event.allowed, event.join_before, event.role, event.scope)
                # If this write fails, the token's first use writes the record.
                await self._records.store(uses_key(event.token), 0, USES_CODEC.encode(uses))
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
        """Answer with all tokens and the keys that joined with them; raises CommandRefused."""
        answer = await self._records.read(LIST_KEY)
        if not answer.ok and answer.reason != "missing":
            raise CommandRefused(
                f"The list of tokens cannot be read: the ring did not answer ({answer.reason}). Try again."
            )
        rows = []
        for join_before, token in self._listed(answer):
            use_answer = await self._records.read(uses_key(token))
            uses = decoded_uses(token, use_answer.value) if use_answer.ok else None
            if uses is not None:
                self._report(uses)
                rows.append(self._row(uses))
            elif use_answer.reason == "missing":
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
