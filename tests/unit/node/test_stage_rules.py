"""Rules of an application against the nodes that exist: refusals that name the rule, moves, growth, drains."""

import re

import msgspec
import pytest

from agiledart_dataflow.plan.placement_rules import PlacementRules
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import encode
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.records.stage_rules import NodeTraits, broken_rule, partners, ruled_demand, unfulfilled
from agiledart_node.recovery.change_plans import NodeCapacity, drained, moved, scaled, stage_plan_of
from agiledart_placement.baselines.along_path import AlongPath
from agiledart_placement.problem.request import HostState, Obstacle, PlacementRequest, StageDemand
from agiledart_recovery.wire.register_value import RegisterValue
from tests.unit.node.test_change_plans import hosts, value

NODES = [
    NodeTraits(NodeId(1), "n1", "attic", "h1", ("gpu",)),
    NodeTraits(NodeId(2), "n2", "attic", "h1", ()),
    NodeTraits(NodeId(3), "n3", "cellar", "h2", ("gpu", "camera")),
]


def ruled(**rules: PlacementRules) -> StagePlan:
    """The plan trips → busy+areas → top → out of `test_change_plans` with rules, by stage."""
    plan = stage_plan_of(value())
    stages = (
        msgspec.structs.replace(stage, rules=rules.get(stage.name.split("+")[0], stage.rules)) for stage in plan.stages
    )
    return msgspec.structs.replace(plan, stages=tuple(stages))


def running(number: int = 2, **rules: PlacementRules) -> RegisterValue:
    """A register of a run with rules."""
    plain = value(number)
    plan = stage_plan_of(plain)
    stages = tuple(msgspec.structs.replace(s, rules=rules.get(s.name.split("+")[0], s.rules)) for s in plan.stages)
    body = encode(msgspec.structs.replace(plan, stages=stages))
    return msgspec.structs.replace(plain, plan=msgspec.structs.replace(plain.plan, body=body))


def capacity(name: str, free: int = 4, *labels: str) -> NodeCapacity:
    """A node of the register of `test_change_plans`, or a further one."""
    known = {host.name: host for host in value().plan.hosts.values()}
    return NodeCapacity(known.get(name) or Peer(NodeId(99), 1, name), free, labels=labels)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (PlacementRules(labels=("tpu",)), r"the rule 'needs the label tpu'. Did you mean gpu\? Labels: camera \(n3\); gpu"),
        (PlacementRules(zone="attics"), r"'only zone attics'. Did you mean attic\? Known zones: attic, cellar"),
        (PlacementRules(labels=("camera",), zone="attic"), r"its other rules allow \(n3\) fulfils the rule 'only zone attic'"),
        (PlacementRules(on=("n2",), labels=("gpu",)), r"\(n1, n3\) fulfils the rule 'only on n2'"),
        (PlacementRules(apart_from=(("node", "busy"),)), "cannot be apart from busy, which runs in the same stage"),
    ],
)  # fmt: skip
def test_rules_without_a_fitting_node_are_named_with_the_nearest_name(rules: PlacementRules, words: str) -> None:
    assert re.search(words, unfulfilled(ruled(busy=rules), NODES))


def test_rules_about_two_stages_contradict_each_other_where_no_pair_of_nodes_fulfils_them() -> None:
    here, there = PlacementRules(on=("n1",)), PlacementRules(on=("n3",), together_with=("busy",))
    assert "must run together with busy+areas, and no node may run both" in unfulfilled(
        ruled(busy=here, top=there), NODES
    )
    apart = PlacementRules(zone="attic", apart_from=(("host", "busy"),))
    text = unfulfilled(ruled(busy=here, top=apart), NODES)
    assert text == "top: it must share no host with busy+areas, and all nodes that may run them do: n1, n2."
    assert unfulfilled(ruled(busy=here, top=PlacementRules(apart_from=(("zone", "busy"),))), NODES) == ""
    assert unfulfilled(ruled(), NODES) == ""


def test_a_submission_follows_its_rules_though_its_path_lies_elsewhere() -> None:
    rules = {"busy": PlacementRules(labels=("camera",)), "top": PlacementRules(together_with=("busy",))}
    plan = msgspec.structs.replace(ruled(**rules), stages=tuple(
        msgspec.structs.replace(stage, parallelism=1) for stage in ruled(**rules).stages))  # fmt: skip
    names = {node.name: node.node for node in NODES}
    stages = tuple(
        ruled_demand(StageDemand(s.index, s.name, 1, NodeId(1) if s.kind != "operator" else None), plan, names)
        for s in plan.stages
    )
    states = {n.node: HostState(n.node, offers=n.labels, zone=n.zone, host=n.host) for n in NODES}
    edges = tuple((edge.source, edge.target) for edge in plan.edges)
    placement = AlongPath().place(PlacementRequest(stages, edges, ((NodeId(1), NodeId(2)),), states))
    by_name = {s.name: placement.nodes[s.index, 0] for s in plan.stages}
    assert (by_name["busy+areas"], by_name["top"]) == (NodeId(3), NodeId(3))
    assert {why for _, why in placement.away.values()} <= {Obstacle.TAG, Obstacle.RULE, Obstacle.UNKNOWN}


def test_a_move_against_a_rule_is_refused_by_its_name() -> None:
    state = running(top=PlacementRules(labels=("gpu",)))
    with pytest.raises(CommandRefused, match=r"A rule of .* forbids n9: top needs the label gpu"):
        moved(state, "top", capacity("n9"), "")
    assert hosts(moved(state, "top", capacity("n9", 4, "gpu"), ""), "2") == ["n9"]


def test_stages_that_belong_together_move_together() -> None:
    state = running(1, top=PlacementRules(together_with=("busy",)))
    plan = moved(state, "busy", capacity("n9"), "")
    assert hosts(plan, "1") == hosts(plan, "2") == ["n9"]
    with pytest.raises(CommandRefused, match="room for 1 more instances, but 2"):
        moved(state, "busy", capacity("n9", 1), "")


def test_a_move_beside_a_stage_that_must_be_apart_is_refused() -> None:
    state = running(2, top=PlacementRules(apart_from=(("node", "busy"),)))
    there = state.plan.stage("1")[1].host
    with pytest.raises(CommandRefused, match=rf"top shares no node with busy.areas, which is on {there.name}"):
        moved(state, "top", NodeCapacity(there, 4), "")


def test_growth_and_drains_pass_over_forbidden_nodes() -> None:
    state = running(2, busy=PlacementRules(labels=("gpu",)))
    grown = scaled(state, "busy", 3, [capacity("n8", 9), capacity("n9", 1, "gpu")], "")
    assert hosts(grown, "1")[2] == "n9"
    with pytest.raises(CommandRefused, match=r"A rule forbids n8: busy.areas needs the label gpu"):
        scaled(state, "busy", 3, [capacity("n8", 9)], "")
    leaving = state.plan.stage("1")[0].host.node
    with pytest.raises(CommandRefused, match="A rule forbids n8: needs the label gpu"):
        drained(state, leaving, [capacity("n8", 9)], "")


def test_partners_are_linked_in_both_directions() -> None:
    plan = ruled(top=PlacementRules(together_with=("busy",)))
    assert [stage.name for stage in partners(plan, plan.stage_named("busy"))] == ["busy+areas", "top"]
    assert [stage.name for stage in partners(plan, plan.stage_named("trips"))] == ["trips"]
    placed = {(2, 0): NODES[2]}
    rule = broken_rule(plan, plan.stage_named("busy"), 0, NODES[0], placed)
    assert rule == "runs together with top, which is on n3"
