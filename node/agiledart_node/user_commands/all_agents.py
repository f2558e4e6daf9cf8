"""Requests to all agents: a node knows its neighbours and some others, so each answer lists the nodes that its sender knows."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from agiledart_kernel.instants import Duration
from agiledart_kernel.machine import Message
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import NodeContext

MAX_AGENTS = 1_024
"""Agents asked for one answer."""


class NamesAgents(Protocol):
    """An answer that lists other agents."""

    @property
    def known(self) -> tuple[Peer, ...]: ...


A = TypeVar("A", bound=NamesAgents)


async def ask_all_agents(
    context: NodeContext, question: Callable[[int, Peer, int], Message], expects: type[A]
) -> list[tuple[Peer, A | None]]:
    """Ask agents until no answer names a new one. Return each agent with its answer, None when it was silent.

    Args:
        question: makes a message of (request number, receiver, number of agents asked so far and now).
    """
    known = {peer.node: peer for peer in context.known()}
    asked: dict[NodeId, tuple[Peer, A | None]] = {}
    while new := [peer for node, peer in known.items() if node not in asked][: MAX_AGENTS - len(asked)]:
        count = len(asked) + len(new)
        answers = await context.requests.ask_all(
            new,
            lambda number, peer, count=count: question(number, peer, count),  # type: ignore[misc]
            expects,  # type: ignore[type-var]
            Duration(context.config.report_timeout_ns),
        )
        for peer, answer in answers:
            asked[peer.node] = (peer, answer)
            for other in answer.known if answer is not None else ():
                known.setdefault(other.node, other)
    return list(asked.values())
