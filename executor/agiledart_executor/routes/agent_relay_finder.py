"""Search for relays to an executor that does not answer directly, by the agent, which knows the ring."""

import asyncio
from collections.abc import Callable

from agiledart_executor.wire.agent_messages import FindRelays, HopFigures, RelaysFound
from agiledart_kernel.node_id import NodeId
from agiledart_transport.circuits import Via


class AgentRelayFinder:
    """Finder of relays that asks the agent and waits for its answer.

    Args:
        send: sends a request to the agent.
    """

    def __init__(self, send: Callable[[FindRelays], None]) -> None:
        self._send = send
        self._open: dict[int, asyncio.Future[RelaysFound]] = {}
        self._number = 0

    async def ask(
        self,
        agent: NodeId,
        executor: NodeId,
        most: int = 1,
        avoid: tuple[str, ...] = (),
        by: tuple[str, ...] = (),
        doubted: tuple[str, ...] = (),
        direct: str = "",
    ) -> tuple[Via, ...]:
        """Return relays to an executor of an agent; arguments as in `FindRelays`. Raises ConnectionError when there is none."""
        answer = await self._answer(agent, executor, most, avoid, by, doubted, direct)
        if answer.refused or not answer.relays:
            raise ConnectionError(answer.refused or "no relay leads there")
        return tuple(Via(offer.host, offer.port, offer.ticket, offer.name, offer.cost) for offer in answer.relays)

    async def address(self, agent: NodeId, executor: NodeId) -> str | None:
        """Ask for the address that an agent published last ("": unknown); None: it may not be dialled from here."""
        answer = await self._answer(agent, executor, 0, (), (), ())
        return answer.address if answer.may_dial else None

    async def hops(self, agent: NodeId, executor: NodeId, by: tuple[str, ...]) -> tuple[HopFigures, ...]:
        """Return the agent's next hops to another agent, the cheapest by ω + J first."""
        return (await self._answer(agent, executor, 0, (), by, (), with_hops=True)).hops

    async def _answer(
        self,
        agent: NodeId,
        executor: NodeId,
        most: int,
        avoid: tuple[str, ...],
        by: tuple[str, ...],
        doubted: tuple[str, ...],
        direct: str = "",
        *,
        with_hops: bool = False,
    ) -> RelaysFound:
        self._number += 1
        number = self._number
        answer: asyncio.Future[RelaysFound] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self._send(FindRelays(number, agent, executor, most, avoid, by, doubted, direct, with_hops))
            return await answer
        finally:
            del self._open[number]

    def receive_answer(self, answer_message: RelaysFound) -> None:
        """Hand the agent's answer to the request that waits for it."""
        future = self._open.get(answer_message.request)
        if future is not None and not future.done():
            future.set_result(answer_message)
