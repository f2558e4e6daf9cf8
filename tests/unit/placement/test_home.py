"""A step between a source and a sink of one node stays there, and a step that is elsewhere has a reason."""

from agiledart_kernel.node_id import NodeId
from agiledart_placement.baselines.along_path import AlongPath
from agiledart_placement.problem.request import HostState, Obstacle, Placement, PlacementRequest
from tests.unit.placement.test_strategies import A, B, C, D, chain, with_host


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


def test_steps_of_idle_nodes_stay_with_source_and_sink_when_no_node_lies_between() -> None:
    for steps, nodes in ((1, [A, B, B]), (2, [A, B, B, B]), (3, [A, A, B, B, B]), (4, [A, A, A, B, B, B])):
        placement = place(*[1] * steps, sink=B)
        assert [placement.nodes[stage, 0] for stage in range(steps + 2)] == nodes
        assert (placement.away, placement.relaxed) == ({}, ())


def test_more_steps_run_between_those_at_the_ends() -> None:
    placement = place(*[1] * 6, sink=B)
    nodes = [placement.nodes[stage, 0] for stage in range(8)]
    assert (nodes[:3], nodes[5:]) == ([A] * 3, [B] * 3)
    assert set(nodes[3:5]) & {A, B} == set()


def test_a_step_placed_off_its_path_has_a_reason_and_no_row_comes_back() -> None:
    """The sink's node takes the last steps: those that run elsewhere lie before them."""
    request = chain(1, 1, 1, source=A, sink=D)
    placement = AlongPath().place(PlacementRequest(request.stages, request.edges, ((A, B, D),), request.hosts))
    nodes = [placement.nodes[stage, 0] for stage in range(5)]
    assert nodes[0] == A
    assert nodes[-1] == D
    passed = [node for node, before in zip(nodes, [None, *nodes], strict=False) if node != before]
    assert len(passed) == len(set(passed)), "no node is visited twice"
    assert set(placement.away) <= {(1, 0), (2, 0), (3, 0)}


def test_instances_of_others_take_places_of_steps_at_the_ends() -> None:
    """Without this, nodes at both ends of many short paths hold more than their balanced share."""
    busy_source = place(*[1] * 6, sink=B, host=HostState(A, operators=1, candidates=(B, C, D)))
    assert [node for (_, _), node in sorted(busy_source.nodes.items())].count(A) == 2, "the source and one step"
    busy_sink = place(*[1] * 6, sink=B, host=HostState(B, operators=1, candidates=(A, C, D)))
    assert [node for (_, _), node in sorted(busy_sink.nodes.items())].count(B) == 2, "the sink and one step"


def test_candidates_of_other_hosts_come_before_the_balance_rule_goes() -> None:
    """All nodes near the host are full, those near another host of the path are idle."""
    near, far = NodeId.from_hex("51"), NodeId.from_hex("61")
    hosts = {
        A: HostState(A),
        B: HostState(B, 2, candidates=(near,)),
        C: HostState(C, 2, candidates=(far,)),
        near: HostState(near, 2),
        far: HostState(far),
    }
    request = chain(1, source=A, sink=C)
    placement = AlongPath().place(PlacementRequest(request.stages, request.edges, ((A, B, C),), hosts))
    assert placement.nodes[1, 0] == far
    assert "balance" not in placement.relaxed
