"""Socket pairs to other executors of the same run on this node, which the agent makes and hands over."""

import asyncio
import socket
from collections.abc import Callable

from agiledart_executor.wire.agent_messages import OpenPair, PairRefused
from agiledart_executor.wire.handed_connections import HandedPair
from agiledart_kernel.node_id import NodeId
from agiledart_transport.socket_pair import PairEnd


class AgentPairs:
    """Asks the agent for socket pairs.

    Args:
        send: sends a request to the agent.
    """

    def __init__(self, send: Callable[[OpenPair], None]) -> None:
        self._send = send
        self._open: dict[int, asyncio.Future[PairEnd | None]] = {}
        self._number = 0

    async def open(self, executor: NodeId, timeout: float) -> PairEnd | None:
        """Return this end of a pair to an executor; None when the agent gives none. Raises TimeoutError after `timeout` seconds."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[PairEnd | None] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self._send(OpenPair(number, executor))
            async with asyncio.timeout(timeout):
                return await answer
        except BaseException:
            if answer.done() and not answer.cancelled() and (end := answer.result()) is not None:
                end.connection.close()  # it came at the moment at which the caller gave up
            raise
        finally:
            del self._open[number]

    def receive(self, connection: socket.socket, handed: HandedPair) -> None:
        """Hand an end to the request that waits for it."""
        if (answer := self._open.get(handed.request)) is None or answer.done():
            connection.close()
        else:
            answer.set_result(PairEnd(connection, handed.certificate))

    def receive_refusal(self, refused: PairRefused) -> None:
        """Tell the request that there is no pair."""
        if (answer := self._open.get(refused.request)) is not None and not answer.done():
            answer.set_result(None)
