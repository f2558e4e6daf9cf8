"""Peer verifier of an agent: certificate → key, chain → grant, role → service. It needs no other process."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from agiledart_kernel.clocks import NAMED_MS, describe_difference
from agiledart_kernel.errors import Refused
from agiledart_kernel.frames import Hello
from agiledart_kernel.grants import SKEW_SECONDS, Grant, verify_chain
from agiledart_kernel.node_id import node_id_of_key
from agiledart_kernel.services import check_service_access
from agiledart_transport.certificates import check_signature, verify_peer_certificate
from agiledart_transport.peer_verifier import PeerInfo


@dataclass(slots=True)
class LocalPeerVerifier:
    """Verifier of peers of one network.

    Args:
        network: our network's id.
        wall_seconds: the wall clock, in seconds since 1970.
        own: our own grant, for services that compare scopes; None for an agent.
        banned: hashes of links, and keys, that are no longer valid.
    """

    network: bytes
    wall_seconds: Callable[[], float]
    own: Grant | None = None
    banned: Collection[bytes] = ()
    _newest: int = field(default=0, init=False)

    def now_seconds(self) -> int:
        """Return the time for these checks: the wall clock, or the newest start of validity that was verified if that is later.

        This moves a clock that runs behind forward, by `SKEW_SECONDS` at the most: no member can push others further.
        """
        wall = int(self.wall_seconds())
        return max(wall, min(self._newest, wall + SKEW_SECONDS))

    def verify(
        self, certificate: bytes, hello: Hello, service: str, *, serves: bool = False, own: Grant | None = None
    ) -> PeerInfo:
        """Verify a peer without waiting. `own`: the grant of the executor that asks its agent, instead of ours."""
        key = verify_peer_certificate(certificate)
        try:
            grant = verify_chain(self.network, hello.chain, key, self.now_seconds(), check_signature, self.banned)
        except Refused as refusal:
            raise self._by_clocks(refusal, hello) from None
        self._newest = max(self._newest, grant.not_before)
        check_service_access(service, grant, own or self.own, serves=serves)
        return PeerInfo(node_id_of_key(key), key, grant, hello)

    def _by_clocks(self, refusal: Refused, hello: Hello) -> Refused:
        """Return the same refusal. When its reason is a time, and the peer's clock differs from ours, its text says so."""
        ahead = hello.wall_ms - int(self.wall_seconds() * 1_000)
        if refusal.reason not in ("not yet valid", "expired") or not hello.wall_ms or abs(ahead) <= NAMED_MS:
            return refusal
        _, _, detail = str(refusal).partition(": ")
        return Refused(
            refusal.reason,
            f"{detail}; clock of {hello.name or 'the peer'} is {describe_difference(ahead)}, as measured here",
        )

    async def verify_peer(self, certificate: bytes, hello: Hello, service: str, *, serves: bool = False) -> PeerInfo:
        """Return the verified peer. Raises `Refused`."""
        return self.verify(certificate, hello, service, serves=serves)
