"""Rules of an application about its nodes, applied to the nodes that exist: at its submission, and whenever a stage moves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from agiledart_dataflow.plan.placement_rules import NO_RULES, PlacementRules
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_kernel.node_id import NodeId
from agiledart_node.context.node_context import did_you_mean
from agiledart_placement.problem.request import StageDemand

MAX_SHOWN = 12
"""Names that a refusal lists."""


class NodeTraits(NamedTuple):
    """Properties of a node that rules ask for."""

    node: NodeId
    name: str
    zone: str = ""
    host: str = ""
    labels: tuple[str, ...] = ()


def has_rules(stages: Sequence[Stage]) -> bool:
    """Return whether any stage has a rule about its nodes."""
    return any(stage.rules != NO_RULES for stage in stages)


def ruled_demand(demand: StageDemand, plan: StagePlan, nodes: Mapping[str, NodeId]) -> StageDemand:
    """Return what a stage needs of its node, with its rules.

    Args:
        nodes: ids of known nodes by name; a rule may name others, which count as absent.
    """
    rules = plan.stages[demand.stage].rules
    if rules == NO_RULES:
        return demand
    return replace(
        demand,
        needs=rules.labels,
        zone=rules.zone,
        candidates=tuple(nodes[name] for name in rules.on if name in nodes) if rules.on else None,
        together_with=tuple(dict.fromkeys(_other(plan, demand.stage, rules.together_with))),
        apart_from=tuple((kind, plan.stage_named(step).index) for kind, step in rules.apart_from),
    )


def _other(plan: StagePlan, stage: int, steps: Sequence[str]) -> list[int]:
    return [index for step in steps if (index := plan.stage_named(step).index) != stage]


def unfulfilled(plan: StagePlan, nodes: Sequence[NodeTraits]) -> str:
    """Return why no node may run some stage, which rule excluded the last ones and what is nearest; "": rules can be fulfilled.

    Rules about two stages are judged by the nodes that each may have alone.
    """
    allowed: dict[int, list[NodeTraits]] = {}
    for stage in plan.stages:
        rules, left = stage.rules, list(nodes)
        steps = (
            *((PlacementRules(labels=(label,)), _labels_text(label, nodes)) for label in rules.labels),
            (PlacementRules(zone=rules.zone), _names_text("zone", rules.zone, [node.zone for node in nodes])),
            (
                PlacementRules(on=rules.on),
                _names_text("node", rules.on[0] if rules.on else "", [node.name for node in nodes]),
            ),
        )
        for rule, text in steps:
            rest = [node for node in left if not rule.broken_by(node.name, node.zone, node.labels)]
            if not rest:
                others = "" if len(left) == len(nodes) else f" among those that its other rules allow ({_listed(left)})"
                return f"{stage.name}: no node{others} fulfils the rule '{rule.broken_by('', '', ())}'.{text}"
            left = rest
        allowed[stage.index] = left
    return _contradiction(plan, allowed)


def _contradiction(plan: StagePlan, allowed: Mapping[int, Sequence[NodeTraits]]) -> str:
    """Return which rule about two stages no pair of allowed nodes fulfils; "": none."""
    for stage in plan.stages:
        here = allowed[stage.index]
        for other in _other(plan, stage.index, stage.rules.together_with):
            if not {node.node for node in here} & {node.node for node in allowed[other]}:
                partner = plan.stages[other].name
                return (
                    f"{stage.name}: it must run together with {partner}, and no node may run both: "
                    f"{stage.name} on {_listed(here)}, {partner} on {_listed(allowed[other])}."
                )
        for kind, step in stage.rules.apart_from:
            partner = plan.stage_named(step).name
            there = allowed[plan.stage_named(step).index]
            if stage.name == partner:
                return f"{stage.name}: it cannot be apart from {step}, which runs in the same stage."
            if all(share(kind, a, b) for a in here for b in there):
                return f"{stage.name}: it must share no {kind} with {partner}, and all nodes that may run them do: {_listed(here)}."
    return ""


def share(kind: str, a: NodeTraits, b: NodeTraits) -> bool:
    """Return whether two nodes are the same node, on one host, or in one zone; a zone or host without a name is shared by none."""
    if kind == "host":
        return a.node == b.node or a.host == b.host != ""
    return a.node == b.node or (kind == "zone" and a.zone == b.zone != "")


def broken_rule(
    plan: StagePlan, stage: Stage, index: int, node: NodeTraits, hosts: Mapping[tuple[int, int], NodeTraits]
) -> str:
    """Return the rule that forbids a node for one instance, in words; "": rules allow it.

    Args:
        hosts: (stage, index) → node of all other instances.
    """
    if own := stage.rules.broken_by(node.name, node.zone, node.labels):
        return own
    for other in plan.stages:
        for subject, object_ in ((stage, other), (other, stage)):
            names = object_.name.split("+")
            if any(step in names for step in subject.rules.together_with) and subject.index != object_.index:
                partner = hosts.get((other.index, index % other.parallelism))
                if partner is not None and partner.node != node.node:
                    return f"runs together with {other.name}, which is on {partner.name}"
            for kind, step in subject.rules.apart_from:
                if step not in names or subject.index == object_.index:
                    continue
                for number in range(other.parallelism):
                    partner = hosts.get((other.index, number))
                    if partner is not None and share(kind, node, partner):
                        return f"shares no {kind} with {other.name}, which is on {partner.name}"
    return ""


def partners(plan: StagePlan, stage: Stage) -> list[Stage]:
    """Return the stages that must share the nodes of a stage, itself first."""
    linked, queue = [stage], [stage]
    while queue:
        current = queue.pop()
        for other in plan.stages:
            pairs = ((current, other), (other, current))
            is_linked = any(
                a.rules.together_with and set(a.rules.together_with) & set(b.name.split("+")) for a, b in pairs
            )
            if is_linked and other not in linked:
                linked.append(other)
                queue.append(other)
    return linked


def _labels_text(label: str, nodes: Sequence[NodeTraits]) -> str:
    by_label: dict[str, list[str]] = {}
    for node in nodes:
        for known in node.labels:
            by_label.setdefault(known, []).append(node.name)
    if not by_label:
        return f" No node has a label: agiledart agent --label {label}"
    listed = "; ".join(
        f"{known} ({', '.join(sorted(names)[:4])})" for known, names in sorted(by_label.items())[:MAX_SHOWN]
    )
    return f"{did_you_mean(label, sorted(by_label))} Labels: {listed}"


def _names_text(kind: str, wanted: str, names: Sequence[str]) -> str:
    known = sorted({name for name in names if name})
    return f"{did_you_mean(wanted, known)} Known {kind}s: {', '.join(known[:MAX_SHOWN]) or 'none has a name'}"


def _listed(nodes: Sequence[NodeTraits]) -> str:
    names = sorted(node.name for node in nodes)
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return f"{', '.join(names[:MAX_SHOWN]) or 'none'}{more}"
