"""Who is at the other end of a link, and who decides whether it may be there.

An agent judges by itself (`local_judge`); an executor asks its agent, because judging needs the cryptography library.
"""

from typing import Protocol

import msgspec

from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import Grant
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_kernel.peer import Peer


class PeerInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A verified peer: proven key, judged grant, and what it says about itself."""

    node_id: NodeId
    public_key: bytes
    grant: Grant
    hello: Hello

    @property
    def agent_id(self) -> NodeId:
        """The ring position of the node that the peer belongs to: its own, or for an executor its agent's."""
        return node_id_of_key(self.grant.issuer) if self.grant.role == "executor" else self.node_id

    def as_peer(self) -> Peer:
        """The peer as protocol code knows it."""
        hello = self.hello
        return Peer(self.node_id, hello.incarnation, hello.name, hello.address, hello.zone, hello.host)


class PeerVerifier(Protocol):
    """Decides about a peer from what TLS and HELLO show."""

    async def verify_peer(self, certificate: bytes, hello: Hello, service: str, *, serves: bool = False) -> PeerInfo:
        """The verified peer; raises `Refused`.

        Args:
            certificate: the peer's TLS leaf (DER).
            service: what the link is for; `serves`: the peer is the acceptor there, not the dialer.
        """
        ...
