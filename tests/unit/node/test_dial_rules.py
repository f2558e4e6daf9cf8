"""Rules about dials: private addresses of other networks, relays that hold a node, members that tester it."""

import pytest

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import Reachability
from agiledart_node.reaching.dial_rules import (
    choose_relays,
    choose_testers,
    dial_candidates,
    host_of,
    is_private,
    may_dial,
)

HOLDER = NodeId(1)


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("192.168.1.20", True), ("10.0.0.1", True), ("100.64.3.2", True), ("169.254.1.1", True), ("fd00::1", True),
        ("fe80::1", True), ("11.0.0.1", False), ("2a01:4f8::1", False), ("pi.example.org", False),
    ],
)  # fmt: skip
def test_private_hosts(host: str, private: bool) -> None:
    assert is_private(host) is private


def test_hosts_of_addresses() -> None:
    assert [host_of(text) for text in ("10.0.0.1:9", "[fd00::1]:9", "")] == ["10.0.0.1", "fd00::1", ""]


@pytest.mark.parametrize(
    ("address", "reach", "mine", "led", "may"),
    [
        ("192.168.1.20:1", Reachability(1, "11.0.0.9", (HOLDER,)), "11.0.0.8", False, False),
        ("192.168.1.20:1", Reachability(1, "11.0.0.9", (HOLDER,)), "", False, False),
        ("192.168.1.20:1", Reachability(1, "", (HOLDER,)), "", False, False),
        ("192.168.1.20:1", Reachability(1, "11.0.0.9", (HOLDER,)), "11.0.0.9", False, True),
        ("192.168.1.20:1", Reachability(1, "11.0.0.9", (HOLDER,)), "11.0.0.8", True, True),
        ("192.168.1.20:1", Reachability(1, "11.0.0.9"), "11.0.0.8", False, True),
        ("192.168.1.20:1", Reachability(), "11.0.0.8", False, True),
        ("11.0.0.9:1", Reachability(1, "11.0.0.9", (HOLDER,)), "11.0.0.8", False, True),
    ],
)
def test_private_addresses_are_dialled_from_their_own_network_only(
    address: str, reach: Reachability, mine: str, led: bool, may: bool
) -> None:
    peer = Peer(NodeId(7), address=address, reach=reach)
    assert may_dial(peer, Reachability(1, mine), is_proven=led) is may


def named(number: int, zone: str = "", **reach: object) -> Peer:
    return Peer(NodeId(number), address=f"11.0.0.{number}:9464", zone=zone, reach=Reachability(1, **reach))  # type: ignore[arg-type]


def test_relays_are_open_ones_in_different_zones_and_never_nodes_that_only_dial_out() -> None:
    unknown, far, near = named(2), named(3, "b", is_open=True), named(4, "a", is_open=True)
    closed = named(5, "a", holders=(HOLDER,))
    members = [unknown, far, near, closed]
    assert choose_relays(members, (), "a") == [near, far, unknown]
    assert choose_relays(members, (near.node,), "a") == [far, unknown]
    assert choose_relays(members, (near.node, far.node), "a") == []


def test_members_of_other_networks_test_a_node() -> None:
    neighbour, closed = named(2, outside="11.0.0.9"), named(3, holders=(HOLDER,))
    same, unknown, open_one, third = named(9), named(4), named(5, is_open=True), named(6, is_open=True)
    members = [neighbour, closed, same, unknown, open_one, third]
    assert choose_testers(members, Reachability(1, "11.0.0.9")) == [open_one, third]
    assert choose_testers([neighbour, unknown], Reachability(1, "11.0.0.9")) == [unknown]


def test_further_addresses_of_another_network_are_dialled_only_where_they_are_public() -> None:
    reach = Reachability(1, "203.0.113.9", addresses=("10.1.1.1:9464", "[2a00:1450::1]:9464"))
    peer = Peer(NodeId(7), address="198.51.100.7:9464").with_reach(reach)
    assert dial_candidates(peer, Reachability(1, "203.0.113.1"), is_proven=False) == (
        "198.51.100.7:9464",
        "[2a00:1450::1]:9464",
    )
    assert len(dial_candidates(peer, Reachability(1, "203.0.113.9"), is_proven=False)) == 3
