"""Names that are taken from py-libp2p: peer ids, addresses, services; and an announcement that reaches a second listener."""

import threading

import pytest

from agiledart_reach.messages import ReachStart
from agiledart_transport.certificates import peer_id_text

pytest.importorskip("libp2p", reason='py-libp2p is not installed: pip install "agiledart[libp2p]"')

from agiledart_reach.lan_neighbours import LanNeighbours, address_of, peer_id_of, service_type

KEYS = (bytes(range(32)), bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"))


def test_libp2p_and_our_certificates_name_a_key_alike() -> None:
    assert peer_id_of(KEYS[1]) == peer_id_text(KEYS[1])
    assert peer_id_of(KEYS[1]).startswith("12D3KooW")


@pytest.mark.parametrize(
    ("multiaddr", "address"),
    [
        ("/ip4/192.0.2.7/tcp/9464/p2p/12D3KooX", "192.0.2.7:9464"),
        ("/ip6/fd00::2/tcp/9464", "[fd00::2]:9464"),
        ("/ip4/0.0.0.0/tcp/9464", None),
        ("/ip4/224.0.0.1/tcp/9464", None),
        ("/ip4/1.2.3/tcp/9464", None),
        ("/ip4/192.0.2.7/tcp/0", None),
        ("/ip4/192.0.2.7/tcp/99999", None),
        ("/ip4/192.0.2.7/udp/9464/quic-v1", None),
        ("/dns4/example.org/tcp/9464", None),
        ("/ip4/127.0.0.1/tcp/9464", None),
        ("", None),
    ],
)
def test_only_tcp_addresses_of_hosts_are_taken(multiaddr: str, address: str | None) -> None:
    assert address_of(multiaddr) == address


def test_a_service_name_fits_in_fifteen_letters() -> None:
    name = service_type("AB" * 32)
    assert name == "_p2p-ababababab._udp.local."
    assert len(name.split(".")[0]) - 1 <= 15


@pytest.mark.slow
def test_a_neighbour_receives_announcements_of_its_network_only() -> None:
    heard, came = [], threading.Event()

    def found(address: str) -> None:
        heard.append(address)
        came.set()

    listener = LanNeighbours(ReachStart(KEYS[0], "aa" * 32, "192.0.2.7", 1, announce=True, map_port=False), found)
    other = LanNeighbours(ReachStart(KEYS[1], "bb" * 32, "192.0.2.9", 3, announce=True, map_port=False), lambda _: None)
    own = LanNeighbours(ReachStart(KEYS[1], "aa" * 32, "192.0.2.8", 2, announce=True, map_port=False), lambda _: None)
    try:
        if not came.wait(30):
            pytest.skip("this machine's network carries no multicast")
        assert set(heard) == {"192.0.2.8:2"}
    finally:
        for neighbours in (own, other, listener):
            neighbours.close()
