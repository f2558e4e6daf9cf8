"""Requirements on every strategy, whatever it prefers."""

import pytest

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_placement.problem.request import HostState, PlacementRequest, StageDemand
from agiledart_placement.registry import STRATEGIES, strategy_named

A, B, C, D = (NodeId(n) for n in (10, 20, 30, 40))


def chain(*parallelism: int, source: NodeId = A, sink: NodeId = D) -> PlacementRequest:
    """source → free stages with these parallelisms → sink, on four nodes that all know each other."""
    stages = [StageDemand(0, "source", 1, source)]
    stages += [StageDemand(i + 1, f"s{i + 1}", p) for i, p in enumerate(parallelism)]
    stages.append(StageDemand(len(stages), "sink", 1, sink))
    nodes = (A, B, C, D)
    hosts = {n: HostState(n, capacity=8, candidates=tuple(m for m in nodes if m != n)) for n in nodes}
    edges = tuple((i, i + 1) for i in range(len(stages) - 1))
    return PlacementRequest(tuple(stages), edges, ((source, sink) if source != sink else (source,),), hosts)


def with_host(request: PlacementRequest, host: HostState) -> PlacementRequest:
    hosts = {**request.hosts, host.node: host}
    return PlacementRequest(request.stages, request.edges, request.paths, hosts)


@pytest.mark.parametrize("name", STRATEGIES)
class TestEveryStrategy:
    def test_every_instance_has_exactly_one_node_and_pins_hold(self, name: str) -> None:
        placement = strategy_named(name).place(chain(4, 1, 3))
        assert sorted(placement.nodes) == [
            (0, 0),
            (1, 0),
            (1, 1),
            (1, 2),
            (1, 3),
            (2, 0),
            (3, 0),
            (3, 1),
            (3, 2),
            (4, 0),
        ]
        assert placement.nodes[0, 0] == A
        assert placement.nodes[4, 0] == D

    def test_the_same_request_gives_the_same_placement(self, name: str) -> None:
        assert strategy_named(name).place(chain(4, 4)) == strategy_named(name).place(chain(4, 4))

    def test_a_draining_node_gets_no_instance(self, name: str) -> None:
        request = with_host(chain(4, 4), HostState(B, is_draining=True))
        assert B not in strategy_named(name).place(request).nodes.values()

    def test_capacity_is_respected(self, name: str) -> None:
        request = with_host(chain(8, 8), HostState(B, capacity=1))
        placed = list(strategy_named(name).place(request).nodes.values())
        assert placed.count(B) <= 1
        assert max(placed.count(n) for n in (A, C, D)) <= 8

    def test_missing_capacity_names_the_stage(self, name: str) -> None:
        with pytest.raises(OperationFailed, match=r"instance \d+ of s1"):
            strategy_named(name).place(chain(100))

    def test_needs_are_met_or_refused(self, name: str) -> None:
        request = chain(1)
        needy = tuple(StageDemand(s.stage, s.name, 1, s.pinned, () if s.pinned else ("gpu",)) for s in request.stages)
        request = PlacementRequest(needy, request.edges, request.paths, request.hosts)
        with pytest.raises(OperationFailed, match="gpu"):
            strategy_named(name).place(request)
        request = with_host(request, HostState(C, offers=("gpu",), candidates=(A, B, D)))
        assert strategy_named(name).place(request).nodes[1, 0] == C


def test_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="along_path, round_robin"):
        strategy_named("by_taste")


def test_along_path_spreads_before_it_relaxes() -> None:
    request = chain(1, 1, 1)
    through_c = PlacementRequest(request.stages, request.edges, ((A, C, D),), request.hosts)
    placement = strategy_named("along_path").place(through_c)
    assert len({placement.nodes[s, 0] for s in (1, 2, 3)}) == 3
    assert placement.relaxed == ()


def test_along_path_relaxes_same_application_before_balance() -> None:
    placement = strategy_named("along_path").place(chain(5))
    assert placement.relaxed == ("same application",)
    placement = strategy_named("along_path").place(chain(7))
    assert placement.relaxed == ("same application", "balance")


def test_relaxed_placement_stays_even() -> None:
    placed = list(strategy_named("along_path").place(chain(4, 4, 4)).nodes.values())
    counts = [placed.count(n) for n in (A, B, C, D)]
    assert max(counts) - min(counts) <= 1


def test_source_and_sink_on_one_node_stay_alone() -> None:
    request = PlacementRequest(
        (StageDemand(0, "s", 1, A), StageDemand(1, "m", 2), StageDemand(2, "t", 1, A)),
        ((0, 1), (1, 2)),
        ((A,),),
        {A: HostState(A)},
    )
    assert set(strategy_named("along_path").place(request).nodes.values()) == {A}
