"""Neighbours on the local network, by libp2p's mDNS discovery in a private service of the network."""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

from libp2p.crypto.ed25519 import Ed25519PublicKey
from libp2p.discovery.events.peerDiscovery import peerDiscovery
from libp2p.discovery.mdns.broadcaster import PeerBroadcaster
from libp2p.discovery.mdns.listener import PeerListener
from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore
from zeroconf import Zeroconf

from agiledart_reach.messages import ReachStart

NETWORK_LETTERS = 10
"""Letters of the network in the service's name, which may have 15. Two networks that share them refuse each other by TLS."""


def service_type(network: str) -> str:
    """Return the private mDNS service of a network (libp2p's `_p2p-X._udp`)."""
    return f"_p2p-{network[:NETWORK_LETTERS].lower()}._udp.local."


def address_of(multiaddr: str, *, loopback: bool = False) -> str | None:
    """Return HOST:PORT of `/ip4/HOST/tcp/PORT/p2p/ID`; None for any other form.

    `loopback`: take loopback addresses only, or none of them: an announcement must not lead an agent to services of its machine.
    """
    parts = multiaddr.split("/")
    if len(parts) < 5 or parts[1] not in ("ip4", "ip6") or parts[3] != "tcp" or not parts[4].isdigit():
        return None
    try:
        host = ip_address(parts[2])
    except ValueError:
        return None
    port = int(parts[4])
    if not 0 < port < 65_536 or host.is_multicast or host.is_unspecified or host.is_loopback is not loopback:
        return None
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def peer_id_of(public_key: bytes) -> str:
    """Return the libp2p peer id of an Ed25519 key."""
    return str(ID.from_pubkey(Ed25519PublicKey.from_bytes(public_key)))


class LanNeighbours:
    """Announcement of this node, and announcements of others. Its calls block: zeroconf waits for the network."""

    def __init__(self, start: ReachStart, on_address: Callable[[str], None]) -> None:
        self._own_id, self._on_address = peer_id_of(start.public_key), on_address
        self._is_loopback = ip_address(start.host).is_loopback
        self._zeroconf = Zeroconf()
        kind = service_type(start.network)
        name = f"{self._own_id}.{kind}"
        family = "ip6" if ":" in start.host else "ip4"
        address = f"/{family}/{start.host}/tcp/{start.port}"
        peerDiscovery.register_peer_discovered_handler(self._discovered)
        self._listener = PeerListener(PeerStore(), self._zeroconf, kind, name)
        self._broadcaster = PeerBroadcaster(
            self._zeroconf, kind, name, self._own_id, start.port, listen_addrs=[address]
        )
        self._broadcaster.register()

    def _discovered(self, peer: Any) -> None:
        """Pass the addresses of a neighbour on; zeroconf calls this in a thread of its own."""
        if str(peer.peer_id) == self._own_id:
            return
        for multiaddr in peer.addrs:
            if (address := address_of(str(multiaddr), loopback=self._is_loopback)) is not None:
                self._on_address(address)

    def close(self) -> None:
        """Withdraw the announcement."""
        self._broadcaster.unregister()
        self._zeroconf.close()
