"""Nodes still connected when single links are cut or held."""

from functools import partial

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.runs.nemesis import is_connected
from agiledart_simulation.world.network import Network, NetworkConfig

NODES = [NodeId(number) for number in range(4)]


def test_a_chain_of_open_links_is_enough() -> None:
    links = {(0, 2), (2, 1), (1, 3)}
    assert is_connected(NODES, lambda a, b: (a, b) in links or (b, a) in links)
    assert not is_connected(NODES, lambda a, b: (a, b) in {(0, 2), (2, 0), (1, 3), (3, 1)})
    assert is_connected([], lambda a, b: False)


def test_a_link_that_is_cut_or_held_in_one_direction_is_not_open() -> None:
    net = Network(NetworkConfig(), RandomStream(1, "network"))
    for node in NODES:
        net.place(node)
    for other in NODES[1:3]:
        net.clog(NODES[0], other)
    is_open = partial(net.is_open, until=2 * SECOND)
    assert is_connected(NODES, is_open)
    net.hold(NODES[3], NODES[0], 2 * SECOND)
    assert is_connected(NODES, is_open), "it is released in time"
    net.hold(NODES[3], NODES[0], 3 * SECOND)
    assert not is_connected(NODES, is_open)
