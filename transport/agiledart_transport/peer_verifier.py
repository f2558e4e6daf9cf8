"""Verification of the peer at the other end of a link.

An agent verifies by itself (`local_peer_verifier`). An executor asks its agent, because verification needs the
cryptography library.
"""

from typing import Protocol

import msgspec

from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import Grant
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_kernel.peer import Peer


class PeerInfo(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A verified peer: proven key, verified grant, and what it says about itself."""

    node_id: NodeId
    public_key: bytes
    grant: Grant
    hello: Hello

    @property
    def agent_id(self) -> NodeId:
        """Ring position of the node that the peer belongs to: its own, or for an executor its agent's."""
        return node_id_of_key(self.grant.issuer) if self.grant.role == "executor" else self.node_id

    def as_peer(self) -> Peer:
        """Return the peer as protocol code knows it."""
        hello = self.hello
        return Peer(self.node_id, hello.incarnation, hello.name, hello.address, hello.zone, hello.host, hello.reach)


class PeerVerifier(Protocol):
    """Verifier that decides about a peer from its TLS certificate and HELLO."""

    async def verify_peer(self, certificate: bytes, hello: Hello, service: str, *, serves: bool = False) -> PeerInfo:
        """Return the verified peer. Raises `Refused`.

        Args:
            certificate: the peer's TLS leaf (DER).
            service: service that the link is for.
            serves: the peer is the acceptor there, not the dialer.
        """
        ...
