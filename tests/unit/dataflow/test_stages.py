"""Stages: where a graph is cut, how rows choose an instance, how long positions are."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest

from agiledart import Topology, TopologyError, collect, records, sliding, tumbling
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_examples.debs2015 import frequent_routes, profitable_areas


def names(plan: StagePlan) -> list[str]:
    """The stages' names."""
    return [stage.name for stage in plan.stages]


def fork() -> Topology:
    """A stream that goes two ways and meets again."""
    topology = Topology("fork")
    stream = topology.source("numbers", records([], row_type=int), event_time=lambda n: n).map(lambda n: n, name="same")
    left = stream.filter(lambda n: n % 2, name="odd").map(lambda n: n, name="odd-2")
    right = stream.flat_map(lambda n: [n, n], name="twice", returns=int)
    both = left.union(right, name="both").map(lambda n: n, name="after")
    both.sink("out", collect)
    return topology


def test_query_1_has_these_stages() -> None:
    plan = plan_stages(frequent_routes().specification(), 4)
    assert names(plan) == ["trips", "ride_of", "route-frequency", "busiest-routes+route_report", "report"]
    assert [stage.parallelism for stage in plan.stages] == [1, 4, 4, 1, 1]
    assert [stage.kind for stage in plan.stages] == ["source", "operator", "operator", "operator", "sink"]
    assert [stage.has_state for stage in plan.stages] == [False, False, True, True, False]
    assert [edge.partitioning for edge in plan.edges] == ["round_robin", "key", "single", "single"]
    assert [edge.depth for edge in plan.edges] == [0, 0, 1, 1]


def test_query_2_has_these_stages() -> None:
    plan = plan_stages(profitable_areas().specification(), {"areas": 3})
    assert names(plan) == ["trips", "taxi_ride_of", "taxis", "areas", "best-areas+area_report", "report"]
    assert [stage.parallelism for stage in plan.stages] == [1, 1, 1, 3, 1, 1]
    assert [edge.depth for edge in plan.edges] == [0, 0, 2, 4, 1]


def test_a_fork_ends_a_stage_and_a_union_begins_one() -> None:
    plan = plan_stages(fork().specification(), 2)
    assert names(plan) == ["numbers", "same", "odd+odd-2", "twice", "both+after", "out"]
    into_union = [edge for edge in plan.edges if plan.stages[edge.target].name == "both+after"]
    assert [(edge.depth, edge.padding) for edge in into_union] == [(0, (-1, 0)), (1, (1,))]
    assert [edge.partitioning for edge in into_union] == ["forward", "forward"]


def test_channels_are_all_pairs_except_on_forward_edges() -> None:
    plan = plan_stages(fork().specification(), {"same": 2, "odd": 2, "twice": 3})
    of_edge = {edge.index: (plan.stages[edge.source].name, plan.stages[edge.target].name) for edge in plan.edges}
    channels = [(*of_edge[edge], source, target) for edge, source, target in plan.channels()]
    assert [c for c in channels if c[1] == "odd+odd-2"] == [("same", "odd+odd-2", 0, 0), ("same", "odd+odd-2", 1, 1)]
    assert len([c for c in channels if c[1] == "twice"]) == 6
    for stage in plan.stages:
        for index in range(stage.parallelism):
            entering = [(e, s) for e, s, t in plan.channels() if plan.edges[e].target == stage.index and t == index]
            assert sorted(plan.inputs(stage.index, index)) == sorted(entering)


def test_a_plan_survives_encoding() -> None:
    plan = plan_stages(profitable_areas().specification(), 3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=StagePlan) == plan


def test_a_pinned_step_is_a_stage_of_its_own() -> None:
    specification = fork().specification()
    steps = [msgspec.structs.replace(step, at="pi2") if step.name == "odd-2" else step for step in specification.steps]
    plan = plan_stages(msgspec.structs.replace(specification, steps=tuple(steps)))
    assert "odd" in names(plan)
    assert plan.stage_named("odd-2").at == "pi2"


def test_steps_pinned_to_one_node_are_one_stage() -> None:
    specification = fork().specification()
    at = {"odd": "pi2", "odd-2": "pi2"}
    steps = [msgspec.structs.replace(step, at=at.get(step.name, step.at)) for step in specification.steps]
    plan = plan_stages(msgspec.structs.replace(specification, steps=tuple(steps)))
    assert plan.stage_named("odd+odd-2").at == "pi2"


@pytest.mark.parametrize(
    ("parallelism", "words"),
    [
        (0, "1 to 128"),
        (129, "1 to 128"),
        ({"route-frequency": -1}, "1 to 128"),
        ({"route-frequenzy": 2}, "Did you mean route-frequency?"),
        ({"busiest-routes": 2}, "runs once"),
        ({"report": 2}, "runs once"),
    ],
)
def test_impossible_parallelism_is_rejected(parallelism: int | Mapping[str, int], words: str) -> None:
    with pytest.raises(TopologyError) as error:
        plan_stages(frequent_routes().specification(), parallelism)
    assert words in str(error.value)


def test_steps_of_one_stage_need_one_number() -> None:
    with pytest.raises(TopologyError, match="one number"):
        plan_stages(fork().specification(), {"odd": 2, "odd-2": 3})


def test_an_unknown_stage_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(TopologyError, match="Did you mean twice"):
        plan_stages(fork().specification()).stage_named("twize")


def test_window_kinds_differ_in_the_length_of_their_positions() -> None:
    topology = Topology("depths")
    keyed = topology.source("n", records([], row_type=int), event_time=lambda n: n).key_by(lambda n: n)
    keyed.window(sliding(timedelta(seconds=1))).count("slides").sink("a", collect)
    keyed.window(tumbling(timedelta(seconds=1))).count("tumbles").sink("b", collect)
    depths = {edge.row_type.partition("(")[0]: edge.depth for edge in plan_stages(topology.specification()).edges}
    assert (depths["Change"], depths["Pane"]) == (1, 0)
