"""Rules about nodes bind the hosts that take lost instances over: labels and zones strictly, rules about two stages if they can."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from agiledart_dataflow.plan.placement_rules import PlacementRules
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.context.node_labels import MAX_NODES, NodeLabels
from agiledart_node.recovery.placement_host_rules import MAX_ASKED, PlacementHostRules
from agiledart_recovery.attempts.replanning import forbidding_rule, next_plan
from agiledart_recovery.wire.register_value import RegisterValue
from tests.unit.node.test_stage_rules import running as running_with_state

NEAR = Peer(NodeId(51), 1, "near", zone="attic")
FAR = Peer(NodeId(90), 1, "far", zone="cellar")
OTHER = Peer(NodeId(91), 1, "other", zone="cellar")


def rules(labels: dict[Peer, tuple[str, ...]]) -> PlacementHostRules:
    """The rules at a node that knows the labels of these nodes."""
    known = NodeLabels()
    for peer, names in labels.items():
        known.report(peer, names)
    me, config = Peer(NodeId(1), 1, "me"), SimpleNamespace(labels=())
    return PlacementHostRules(cast("Any", SimpleNamespace(me=me, config=config, labels=known)))


def running(number: int = 1, **rules: PlacementRules) -> RegisterValue:
    """A run with rules and without saved state, which any node could take over."""
    return msgspec.structs.replace(running_with_state(number, **rules), saved=())


def lost_host(now: RegisterValue, stage: str) -> NodeId:
    """The host of the first instance of a stage."""
    return now.plan.stage(stage)[0].host.node


def successor(now: RegisterValue, stage: str, candidates: Sequence[Peer], known: PlacementHostRules) -> str | None:
    """The name of the node that takes the first instance of a stage over once its host is gone; None: the run waits."""
    gone = lost_host(now, stage)
    plan, _ = next_plan(now, lambda node: node != gone, candidates, lambda peer: peer, (), known)
    return plan.stage(stage)[0].host.name if plan is not None else None


def test_a_label_binds_the_successor_and_one_that_is_not_known_counts_as_missing() -> None:
    now = running(1, busy=PlacementRules(labels=("gpu",)))
    assert successor(now, "1", (NEAR, FAR), rules({NEAR: (), FAR: ("gpu",)})) == "far"
    assert successor(now, "1", (NEAR, FAR), rules({FAR: ("gpu",)})) == "far"
    assert successor(now, "1", (NEAR, FAR), rules({NEAR: ()})) is None


def test_a_new_process_of_a_node_may_have_other_labels() -> None:
    now = running(1, busy=PlacementRules(labels=("gpu",)))
    restarted = Peer(NEAR.node, 2, "near", zone="attic")
    assert successor(now, "1", (restarted,), rules({NEAR: ("gpu",)})) is None
    assert successor(now, "1", (restarted,), rules({restarted: ("gpu",)})) == "near"


def test_a_zone_binds_the_successor_and_the_refusal_names_the_rule() -> None:
    now = running(1, busy=PlacementRules(zone="cellar"))
    known = rules({})
    assert successor(now, "1", (NEAR, FAR), known) == "far"
    assert successor(now, "1", (NEAR,), known) is None
    gone = lost_host(now, "1")
    assert forbidding_rule(now, lambda node: node != gone, (NEAR,), known) == (
        "no other reachable node fulfils its rule (busy+areas: only zone cellar)"
    )
    assert forbidding_rule(now, lambda node: node != gone, (NEAR, FAR), known) == ""


def test_a_rule_about_two_stages_does_not_stop_a_run() -> None:
    now = running(2, busy=PlacementRules(apart_from=(("node", "top"),)))
    gone, there = now.plan.stage("1")[1].host, now.plan.stage("2")[0].host

    def taker(*candidates: Peer) -> str:
        plan, _ = next_plan(now, lambda node: node != gone.node, candidates, lambda peer: peer, (), rules({}))
        assert plan is not None
        return plan.stage("1")[1].host.name

    assert taker(there, FAR) == taker(FAR, there) == "far"
    assert taker(there) == there.name, "it goes on where no other node is left"


def test_stages_that_run_together_are_taken_over_by_a_node_that_both_may_use() -> None:
    now = running(1, busy=PlacementRules(), top=PlacementRules(labels=("gpu",), together_with=("busy",)))
    gone = {lost_host(now, "1"), lost_host(now, "2")}
    known = rules({NEAR: (), FAR: ("gpu",), OTHER: ()})
    plan, _ = next_plan(now, lambda node: node not in gone, (NEAR, FAR, OTHER), lambda peer: peer, (), known)
    assert plan is not None
    assert [plan.stage(stage)[0].host.name for stage in ("1", "2")] == ["far", "far"]


def test_runs_without_rules_are_taken_over_as_before() -> None:
    assert successor(running(1), "1", (NEAR, FAR), rules({})) == "near"


def test_labels_of_so_many_nodes_are_remembered() -> None:
    known = NodeLabels()
    peers = [Peer(NodeId(number), 1, f"n{number}") for number in range(1, MAX_NODES + 2)]
    for peer in peers:
        known.report(peer, ("gpu",))
    assert known.unknown(peers) == [peers[0]]


def test_nodes_that_report_no_labels_do_not_keep_others_from_their_turn() -> None:
    now = running(1, busy=PlacementRules(labels=("gpu",)))
    peers = [Peer(NodeId(1_000 + number), 1, f"n{number}") for number in range(MAX_ASKED + 4)]
    asked: list[list[str]] = []

    async def ask(nodes: list[Peer]) -> None:
        asked.append([peer.name for peer in nodes])

    known = rules({})
    context: Any = known._context
    context.overlay, context.nearest_of = SimpleNamespace(known_peers=lambda: peers), list
    machine = cast("Any", SimpleNamespace(coordinators={"app": SimpleNamespace(known=now)}))
    for _ in range(2):
        asyncio.run(known.learn(machine, ask))
    assert asked[0] == [peer.name for peer in peers[:MAX_ASKED]]
    assert asked[1][:4] == [peer.name for peer in peers[MAX_ASKED:]], "the others come first in the second round"
