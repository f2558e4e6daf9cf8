"""Replies to repeated requests: a repeated request is not executed again; the requester receives the first answer again."""

from collections.abc import Awaitable
from typing import Final

from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext

MAX_REMEMBERED: Final = 64
"""Remembered answers, of all requesters together."""


class IdempotentReplies:
    """Answers of one kind that this node gave, by requester and request number."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._answers: dict[tuple[NodeId, int], Message | None] = {}

    def is_new(self, sender: Peer, request: int) -> bool:
        """Return whether a request needs an answer; send the known answer again for a repeated one.

        A repeated request whose answer is still being computed gets nothing.
        """
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
        """Await the answer to a new request, remember it and send it."""
        self._answers[sender.node, request] = reply = await answer
        self._context.send(sender, reply)
