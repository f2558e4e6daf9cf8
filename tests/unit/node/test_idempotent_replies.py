"""A question that comes again is not carried out again."""

import asyncio
from typing import Any

from agiledart_node.context.idempotent_replies import MAX_REMEMBERED, IdempotentReplies
from agiledart_node.wire.change_messages import ChangeAccepted
from tests.unit.node.test_node import ME, SCHEDULER


class Desk:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, peer: Any, message: Any) -> None:
        self.sent.append((peer, message))


def test_a_repeated_request_gets_no_early_reply_and_then_the_same_answer() -> None:
    context = Desk()
    once = IdempotentReplies(context)  # type: ignore[arg-type]
    said = ChangeAccepted(7)

    async def answer() -> ChangeAccepted:
        assert not once.is_new(SCHEDULER, 7)
        assert context.sent == []
        return said

    assert once.is_new(SCHEDULER, 7)
    asyncio.run(once.send_reply(SCHEDULER, 7, answer()))
    assert not once.is_new(SCHEDULER, 7)
    assert context.sent == [(SCHEDULER, said), (SCHEDULER, said)]
    assert once.is_new(ME, 7), "another one's question"
    assert once.is_new(SCHEDULER, 8)


def test_old_replies_are_evicted() -> None:
    once = IdempotentReplies(Desk())  # type: ignore[arg-type]
    for request in range(MAX_REMEMBERED + 1):
        assert once.is_new(SCHEDULER, request)
    assert not once.is_new(SCHEDULER, MAX_REMEMBERED)
    assert once.is_new(SCHEDULER, 0)
