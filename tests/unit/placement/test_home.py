"""A step between a source and a sink of one node stays there, and a step that is elsewhere has a reason."""

from agiledart_kernel.node_id import NodeId
from agiledart_placement.baselines.along_path import AlongPath
from agiledart_placement.problem.request import HostState, Obstacle, Placement
from tests.unit.placement.test_strategies import A, B, C, chain, with_host


def place(*parallelism: int, sink: NodeId = A, host: HostState | None = None) -> Placement:
    request = chain(*parallelism, source=A, sink=sink)
    return AlongPath().place(with_host(request, host) if host is not None else request)


def test_one_node_with_source_and_sink_gets_all_instances() -> None:
    placement = place(1, 1, 1)
    assert set(placement.nodes.values()) == {A}
    assert (placement.away, placement.relaxed) == ({}, ())


def test_further_instances_are_spread_over_nodes_with_a_reason() -> None:
    placement = place(3)
    assert placement.nodes[1, 0] == A
    assert {placement.nodes[1, 1], placement.nodes[1, 2]} & {A} == set()
    assert placement.away == {(1, 1): (A, Obstacle.COPIES), (1, 2): (A, Obstacle.COPIES)}


def test_moving_off_a_busy_full_or_leaving_node_has_a_reason() -> None:
    others = (B, C)
    busy = HostState(A, operators=2, candidates=others)
    full = HostState(A, operators=1, capacity=2, candidates=others)
    leaving = HostState(A, is_draining=True, candidates=others)
    for host, why in ((busy, Obstacle.BALANCE), (full, Obstacle.FULL), (leaving, Obstacle.LEAVING)):
        placement = place(1, host=host)
        assert placement.nodes[1, 0] in others
        assert placement.away[1, 0] == (A, why)


def test_a_step_placed_off_its_path_has_a_reason() -> None:
    request = chain(1, 1, 1, source=A, sink=B)
    placement = AlongPath().place(request)
    assert placement.nodes[1, 0] == B, "H of the path A → B is B"
    assert placement.away[2, 0] == (B, Obstacle.BALANCE)
    assert set(placement.away) == {stage for stage, node in placement.nodes.items() if 0 < stage[0] < 4 and node != B}
