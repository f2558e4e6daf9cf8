"""An executor's questions about peers: several at one time, each answered by its own verdict."""

import asyncio
from typing import Any

import pytest

from agiledart_executor.routes.agent_peer_verifier import AgentPeerVerifier
from agiledart_executor.wire.agent_messages import PeerVerdict, VerifyPeer
from agiledart_kernel.codec import encode
from agiledart_kernel.errors import Refused
from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import Grant
from agiledart_kernel.node_id import NodeId
from agiledart_transport.peer_verifier import PeerInfo


class Agent:
    """Keeps the questions that it is asked."""

    def __init__(self) -> None:
        self.asked: list[VerifyPeer] = []

    def send(self, message: Any) -> None:
        """Where a worker's messages go."""
        self.asked.append(message)


def peer(number: int) -> PeerInfo:
    grant = Grant("agent", "", bytes(32), 0, 1, 0, bytes(32), (), (), b"")
    return PeerInfo(NodeId(number), bytes(32), grant, Hello(name=f"pi{number}"))


def test_two_concurrent_verifications_get_their_own_answers() -> None:
    async def play() -> list[PeerInfo]:
        agent = Agent()
        verify_peer = AgentPeerVerifier(agent.send)
        open_ones = [asyncio.ensure_future(verify_peer.verify_peer(b"", Hello(), "data")) for _ in range(3)]
        await asyncio.sleep(0)
        for question in reversed(agent.asked):
            verify_peer.receive_answer(PeerVerdict(question.request, peer=encode(peer(question.request))))
            await asyncio.sleep(0)
        verify_peer.receive_answer(PeerVerdict(99))
        return await asyncio.wait_for(asyncio.gather(*open_ones), 1)

    assert [found.hello.name for found in asyncio.run(play())] == ["pi1", "pi2", "pi3"]


def test_a_refusal_carries_the_agents_reason() -> None:
    async def play() -> None:
        agent = Agent()
        verify_peer = AgentPeerVerifier(agent.send)
        question = asyncio.ensure_future(verify_peer.verify_peer(b"", Hello(), "data"))
        await asyncio.sleep(0)
        verify_peer.receive_answer(PeerVerdict(agent.asked[0].request, refused="expired"))
        await question

    with pytest.raises(Refused, match="expired"):
        asyncio.run(play())
