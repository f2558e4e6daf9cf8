"""The contract of a placement strategy, on random graphs, rings and loads."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_placement.problem.request import HostState, PlacementRequest, StageDemand
from agiledart_placement.registry import STRATEGIES, strategy_named


@st.composite
def requests(draw: st.DrawFn) -> PlacementRequest:
    """One or two sources, some steps in between, a sink; hosts with any load, each knowing some of the others."""
    nodes = [NodeId(10 * (n + 1)) for n in range(draw(st.integers(1, 8)))]
    pick = st.sampled_from(nodes)
    sources = draw(st.lists(pick, min_size=1, max_size=2, unique=True))
    sink = draw(pick)
    middle = draw(st.integers(0, 5))
    stages = [StageDemand(i, f"source{i}", 1, node) for i, node in enumerate(sources)]
    edges = []
    for step in range(middle):
        number = len(stages)
        stages.append(StageDemand(number, f"step{step}", draw(st.integers(1, 5))))
        before = draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=2, unique=True))
        edges += [(above, number) for above in before]
    last = len(stages)
    stages.append(StageDemand(last, "sink", 1, sink))
    open_ends = [s for s in range(last) if not any(above == s for above, _ in edges)]
    edges += [(above, last) for above in open_ends]
    paths = []
    for source in sources:
        others = [node for node in nodes if node not in (source, sink)]
        between = draw(st.lists(st.sampled_from(others), max_size=3, unique=True)) if others else []
        paths.append((source,) if source == sink else (source, *between, sink))
    hosts = {
        node: HostState(
            node,
            draw(st.integers(0, 4)),
            draw(st.integers(0, 12)),
            draw(st.booleans()),
            draw(st.integers(0, 9)) == 0,
            candidates=tuple(draw(st.lists(pick, unique=True))),
        )
        for node in nodes
    }
    return PlacementRequest(tuple(stages), tuple(edges), tuple(paths), hosts)


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=80, deadline=None)
@given(request=requests())
def test_every_instance_is_placed_once_within_pins_and_capacity(name: str, request: PlacementRequest) -> None:
    strategy = strategy_named(name)
    try:
        placement = strategy.place(request)
    except OperationFailed:
        return
    wanted = sorted((stage.stage, index) for stage in request.stages for index in range(stage.parallelism))
    assert sorted(placement.nodes) == wanted
    free: dict[NodeId, int] = {}
    for stage in request.stages:
        for index in range(stage.parallelism):
            node = placement.nodes[stage.stage, index]
            if stage.pinned is not None:
                assert node == stage.pinned
            else:
                free[node] = free.get(node, 0) + 1
    for node, count in free.items():
        state = request.hosts[node]
        assert not state.is_draining
        assert state.operators + count <= state.capacity
    assert strategy.place(request) == placement
