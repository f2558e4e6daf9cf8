"""A conversation for another node that ends without a record of the ring ends no node: it is counted, and the node goes on."""

from types import SimpleNamespace
from typing import Any

from agiledart_kernel.instants import Duration
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.handlers.message_handlers import _as_request

OTHER = Peer(NodeId(7), 1)


def test_a_refused_conversation_is_counted() -> None:
    dropped: list[str] = []
    context: Any = SimpleNamespace(requests=PendingRequests(RandomStream(1), Duration(1), 8), drop=dropped.append)

    async def answer(sender: Peer, message: object) -> None:
        await context.requests.answers({context.requests.number(): None}, Duration(5))
        raise CommandRefused("The record of rooms cannot be read: the ring did not answer.")

    _as_request(context, answer)(OTHER, object())
    (name,) = [effect.name for effect in context.requests.effects]
    context.requests.now = 5
    context.requests.timer(name)
    assert (dropped, context.requests.count) == (["request without answer"], 0)
