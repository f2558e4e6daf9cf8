"""`IdempotentReplies`: a question that comes again is not carried out again; who asks hears the answer that was given."""

from collections.abc import Awaitable
from typing import Final

from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext

MAX_REMEMBERED: Final = 64
"""Answers, of all who ask."""


class IdempotentReplies:
    """Answers of one kind that this node has given, by who asked and the number of the question."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._answers: dict[tuple[NodeId, int], Message | None] = {}

    def is_new(self, sender: Peer, request: int) -> bool:
        """Whether a question is to be answered; else what was said is said again, or nothing while it is being found out."""
        name = (sender.node, request)
        if name in self._answers:
            if (known := self._answers[name]) is not None:
                self._context.send(sender, known)
            return False
        while len(self._answers) >= MAX_REMEMBERED:
            del self._answers[next(iter(self._answers))]
        self._answers[name] = None
        return True

    async def send_reply(self, sender: Peer, request: int, answer: Awaitable[Message]) -> None:
        """The answer to a new one, once it is there."""
        self._answers[sender.node, request] = said = await answer
        self._context.send(sender, said)
