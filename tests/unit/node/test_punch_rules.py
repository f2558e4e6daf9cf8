"""Rules about punching."""

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.reachability import Reachability
from agiledart_node.reaching.punch_rules import AGAIN_NS, ANSWER_NS, MAX_PEERS, PunchRules, is_punchable

RELAYS = (NodeId(9),)
MINE = Reachability(1, "11.0.0.1", RELAYS)


def peer_at(outside: str, node: int = 2) -> Peer:
    return Peer(NodeId(node), 1, reach=Reachability(1, outside, RELAYS))


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("11.0.0.1:40000", True), ("11.0.0.1:1023", False), ("11.0.0.1:70000", False), ("192.168.1.1:40000", False),
        ("127.0.0.1:40000", False), ("", False), ("11.0.0.1", False),
    ],
)  # fmt: skip
def test_addresses_that_may_be_punched(address: str, may: bool) -> None:
    assert is_punchable(address) is may


def test_a_failed_punch_is_tried_again_after_an_hour_or_when_an_address_changes() -> None:
    rules, peer = PunchRules(NodeId(1)), peer_at("11.0.0.2")
    assert rules.is_due(peer, MINE, 0)
    rules.failed(peer, MINE, 0)
    assert not rules.is_due(peer, MINE, AGAIN_NS - 1)
    assert rules.is_due(peer, MINE, AGAIN_NS)
    assert rules.is_due(peer_at("11.0.0.3"), MINE, SECOND)
    assert rules.is_due(peer, Reachability(2, "11.0.0.7", RELAYS), SECOND)


def test_requests_of_one_peer_are_answered_rarely_and_of_others_too() -> None:
    rules = PunchRules(NodeId(1))
    assert rules.may_answer(NodeId(2), 0)
    assert not rules.may_answer(NodeId(2), ANSWER_NS - 1)
    assert rules.may_answer(NodeId(3), SECOND)
    assert rules.may_answer(NodeId(2), ANSWER_NS)


def test_a_bounded_number_of_peers_is_remembered() -> None:
    rules = PunchRules(NodeId(1))
    for number in range(2, MAX_PEERS + 3):
        rules.failed(peer_at("11.0.0.2", number), MINE, 0)
    assert len(rules._failed) == MAX_PEERS
