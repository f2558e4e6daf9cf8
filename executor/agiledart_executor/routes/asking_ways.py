"""`AskingWays`: has the agent find a relay to an executor that does not answer directly; it knows the ring."""

import asyncio
from collections.abc import Callable

from agiledart_executor.messages import AskWay, Way
from agiledart_kernel.node_id import NodeId
from agiledart_transport.circuits import Via


class AskingWays:
    """Asks about each, and waits.

    Args:
        tell: sends a question to the agent.
    """

    def __init__(self, tell: Callable[[AskWay], None]) -> None:
        self._tell = tell
        self._open: dict[int, asyncio.Future[Way]] = {}
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
        """Ways to an executor of an agent, as in `AskWay`; raises ConnectionError: there is none."""
        self._number += 1
        number = self._number
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            self._tell(AskWay(number, agent, executor, most, avoid, by, doubted))
            way = await answer
        finally:
            del self._open[number]
        if way.refused or not way.ways:
            raise ConnectionError(way.refused or "no relay leads there")
        return tuple(Via(one.host, one.port, one.ticket, one.name, one.cost) for one in way.ways)

    def answered(self, way: Way) -> None:
        """The agent's word."""
        future = self._open.get(way.request)
        if future is not None and not future.done():
            future.set_result(way)
