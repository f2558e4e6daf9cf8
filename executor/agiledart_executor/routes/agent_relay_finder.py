"""`AgentRelayFinder`: has the agent find a relay to an executor that does not answer directly; it knows the ring."""

import asyncio
from collections.abc import Callable

from agiledart_executor.wire.agent_messages import FindRelays, RelaysFound
from agiledart_kernel.node_id import NodeId
from agiledart_transport.circuits import Via


class AgentRelayFinder:
    """Asks about each, and waits.

    Args:
        tell: sends a question to the agent.
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
    ) -> tuple[Via, ...]:
        """Ways to an executor of an agent, as in `FindRelays`; raises ConnectionError: there is none."""
        self._number += 1
        number = self._number
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(FindRelays(number, agent, executor, most, avoid, by, doubted))
            answer_message = await answer
        finally:
            del self._open[number]
        if answer_message.refused or not answer_message.relays:
            raise ConnectionError(answer_message.refused or "no relay leads there")
        return tuple(Via(one.host, one.port, one.ticket, one.name, one.cost) for one in answer_message.relays)

    def receive_answer(self, answer_message: RelaysFound) -> None:
        """The agent's word."""
        future = self._open.get(answer_message.request)
        if future is not None and not future.done():
            future.set_result(answer_message)
