"""Which relays are asked first: by what is measured and what they claim, and less by those that claimed too little."""

from agiledart_kernel.instants import MILLISECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.proposals import COST_MOST, DOUBTED_NS, MAX_CLAIMS, Proposals

TARGET = NodeId(99)
PEERS = [Peer(NodeId(number), 1, f"a{number}") for number in (1, 2, 3)]
RTT_MS = {1: 10, 2: 10, 3: 40}


def proposals() -> Proposals:
    return Proposals(
        lambda node: RTT_MS[int(node)] * MILLISECOND if int(node) in RTT_MS else None, RandomStream(1, "p")
    )


def names(made: Proposals, now: int = 0) -> list[str]:
    return [peer.name for peer in made.ranked(PEERS, TARGET, now)]


def test_the_whole_path_is_measured() -> None:
    made = proposals()
    for number, cost in ((1, 30), (2, 5), (3, 1)):
        made.claimed(NodeId(number), TARGET, cost)
    assert names(made) == ["a2", "a3", "a1"]


def test_an_unfounded_claim_attracts_no_more_than_a_trial() -> None:
    made = proposals()
    for number, cost in ((1, 0), (2, 5), (3, 9)):
        made.claimed(NodeId(number), TARGET, cost)
    assert names(made)[0] == "a1"
    made.claimed(NodeId(1), TARGET, 4)
    for _ in range(3):
        made.doubt(["a1"], 0)
    assert names(made)[-1] == "a1"
    assert names(made, DOUBTED_NS + 1)[0] == "a1", "after ten minutes it is believed again"


def test_memory_does_not_grow() -> None:
    made = proposals()
    for number in range(10 * MAX_CLAIMS):
        made.claimed(NodeId(number), TARGET, COST_MOST)
        made.doubt([f"n{number}"], 0)
    assert len(made._claims) == len(made._doubts) == MAX_CLAIMS


def test_all_proposals_are_ranked_once_including_the_costliest() -> None:
    made = proposals()
    for peer in PEERS:
        made.claimed(peer.node, TARGET, COST_MOST)
        for _ in range(20):
            made.doubt([peer.name], 0)
    assert sorted(names(made)) == ["a1", "a2", "a3"]
