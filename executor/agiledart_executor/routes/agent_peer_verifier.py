"""Peer verification by the agent: it needs the cryptography library, which an executor does not load."""

import asyncio
from collections.abc import Callable

from agiledart_executor.wire.agent_messages import PeerVerdict, VerifyPeer
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import Refused
from agiledart_kernel.frames import Hello, encode_hello
from agiledart_transport.peer_verifier import PeerInfo

_PEER_INFO: Codec[PeerInfo] = Codec(PeerInfo)


class AgentPeerVerifier:
    """Verifier of dialling peers that asks the agent about each peer and waits for its verdict.

    Args:
        send: sends a request to the agent.
    """

    def __init__(self, send: Callable[[VerifyPeer], None]) -> None:
        self._send = send
        self._open: dict[int, asyncio.Future[PeerVerdict]] = {}
        self._number = 0

    async def verify_peer(self, certificate: bytes, hello: Hello, service: str, *, serves: bool = False) -> PeerInfo:
        """Return the verified peer; raises `Refused`."""
        self._number += 1
        number = self._number
        answer: asyncio.Future[PeerVerdict] = asyncio.get_running_loop().create_future()
        self._open[number] = answer
        try:
            self._send(VerifyPeer(number, certificate, encode_hello(hello), service, serves))
            verdict = await answer
        finally:
            del self._open[number]
        if verdict.refused:
            raise Refused(verdict.refused)
        return _PEER_INFO.decode(verdict.peer)

    def receive_answer(self, verdict: PeerVerdict) -> None:
        """Hand the agent's verdict to the request that waits for it."""
        future = self._open.get(verdict.request)
        if future is not None and not future.done():
            future.set_result(verdict)
