"""Logical graph → stages: which steps are fused, where the graph is cut, how rows pass from stage to stage.

A stage is the unit of placement. The graph is cut at every shuffle edge (by key, into a union of several streams, into a step
that runs once), and where the pinned node of the steps or the rules about their nodes change; sources and sinks are stages of
their own. Steps inside a stage call each other directly.
Source: spec of the dataflow, section 2.
"""

from collections.abc import Mapping

import msgspec

from agiledart_dataflow.data.carries import Carries, most
from agiledart_dataflow.data.position import union_padding
from agiledart_dataflow.plan.edge_contents import carried, may_delay_watermarks
from agiledart_dataflow.plan.losses import IF_LOST
from agiledart_dataflow.plan.parallelism_request import (
    ParallelismRequest,
    RequestedParallelism,
    builder_limits,
    check_parallelism,
)
from agiledart_dataflow.plan.paths import Paths
from agiledart_dataflow.plan.paths import read as paths_read
from agiledart_dataflow.plan.placement_rules import PLACE
from agiledart_dataflow.plan.specification import PATHS, Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import ERRORS, Edge, Partitioning, Stage, StagePlan
from agiledart_dataflow.plan.standby_option import standby_of
from agiledart_dataflow.plan.step_kinds import STEP_KINDS
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.limits import MAX_STAGES


def plan_stages(
    specification: Specification, parallelism: int | Mapping[str, RequestedParallelism] = 1, at_least: Carries = "rows"
) -> StagePlan:
    """Cut a topology into stages.

    A stage with limits starts at the lower one; its edges are planned for the higher one, so that only the number and the
    owner table change when it scales.

    Args:
        specification: the topology.
        parallelism: instances of every stage that can have several, or by name of a step: a number, or limits.
        at_least: least contents of every edge, even where less would suffice.

    Raises:
        TopologyError: a number out of range, an unknown name of a step, two steps of one stage that disagree.
    """
    for step in specification.steps:
        if step.kind not in STEP_KINDS:
            raise TopologyError(
                f"{step.name}: this version of AgileDart knows no step of kind {step.kind!r}; another version built the topology"
            )
    groups = _fused(specification)
    if len(groups) > MAX_STAGES:
        raise TopologyError(f"{specification.name} has {len(groups)} stages, at most {MAX_STAGES} are possible")
    wanted = ParallelismRequest(specification, parallelism)
    stages: list[Stage] = []
    for index, steps in enumerate(groups):
        head = steps[0]
        asked = wanted.of_stage(steps)
        low, high = (1, asked) if isinstance(asked, int) else asked
        stage = Stage(
            index=index,
            name="+".join(step.name for step in steps),
            kind=head.traits.stage,
            steps=tuple(step.index for step in steps),
            parallelism=asked if isinstance(asked, int) else low,
            keyed=head.keyed,
            has_state=head.traits.has_state,
            at=head.at,
            low=low,
            high=high,
            scales=not isinstance(asked, int),
            if_lost=next((lost for step in steps if (lost := step.option(IF_LOST))), ""),
            rules=head.rules,
            standby=max(standby_of(step) for step in steps),
        )
        stages.append(msgspec.structs.replace(stage, owners=stage.first_owners()))
    edges = _edges(specification, stages)
    plan = StagePlan(specification.name, specification.digest(), tuple(stages), tuple(edges))
    # Contents of edges depend on all stages and edges, so they are decided last.
    needs = carried(specification, plan)
    if specification.lateness_ms:  # the position of a row states its lateness
        at_least = "positions"
    lazy = may_delay_watermarks(specification, plan)
    edges = [
        msgspec.structs.replace(edge, carries=most(at_least, needs[edge.index]), lazy_watermarks=lazy[edge.index])
        for edge in edges
    ]
    return msgspec.structs.replace(plan, edges=tuple(edges))


def _fused(specification: Specification) -> list[list[StepSpecification]]:
    """Return the steps by stage, in an order in which inputs come first."""
    groups: list[list[StepSpecification]] = []
    group_of: dict[int, list[StepSpecification]] = {}
    for step in specification.steps:
        joins = step.is_at_source
        if step.traits.is_stateless and not joins:
            (before,) = step.inputs
            upstream = specification.steps[before]
            consumers = [consumer for consumer in specification.consumers(before) if not consumer.side]
            is_source = upstream.traits.stage == "source" or upstream.is_at_source
            has_same_nodes = step.at == upstream.at and step.option(PLACE) == upstream.option(PLACE)
            joins = not is_source and len(consumers) == 1 and has_same_nodes
        if joins:
            group = group_of[step.inputs[0]]
        else:
            group = []
            groups.append(group)
        group.append(step)
        group_of[step.index] = group
    return groups


def expand_parallelism(
    specification: Specification, asked: Mapping[str, RequestedParallelism]
) -> dict[str, RequestedParallelism]:
    """Return the request by name of a step, with the request for all other steps (`""`) written out.

    That goes to one step of each stage that may have several instances, unless the builder or a name states another number.

    Raises:
        TopologyError: as `plan_stages` does.
    """
    named = {step: number for step, number in asked.items() if step}
    everywhere = asked.get("", 1)
    check_parallelism(everywhere)
    if everywhere == 1:
        return named
    for stage in plan_stages(specification, named).stages:
        steps = [specification.steps[index] for index in stage.steps]
        if not any(step.traits.runs_once or step.name in named or builder_limits(step) for step in steps):
            named[steps[0].name] = everywhere
    return named


def _edges(specification: Specification, stages: list[Stage]) -> list[Edge]:
    stage_of = {step: stage for stage in stages for step in stage.steps}
    depths = _depths(specification)
    edges: list[Edge] = []
    for stage in stages:
        head = specification.steps[stage.steps[0]]
        common = max((depths[before] for before in head.inputs), default=0)
        for branch, before in enumerate(head.inputs):
            upstream = stage_of[before]
            edges.append(
                Edge(
                    index=len(edges),
                    source=upstream.index,
                    target=stage.index,
                    partitioning=_partitioning(head, branch, upstream, stage),
                    row_type=head.row_type if head.side else specification.steps[before].row_type,
                    depth=depths[before],
                    padding=union_padding(depths[before], common, branch) if head.traits.branches else (),
                    side=f"{specification.steps[before].name}/{head.side}" if head.side else "",
                    paths=_paths(specification.steps[before]),
                )
            )
    return edges


def _paths(step: StepSpecification) -> Paths:
    try:
        return paths_read(step.option(PATHS))
    except ValueError as error:
        raise TopologyError(f"{step.name}: {error}") from None


def _partitioning(head: StepSpecification, branch: int, upstream: Stage, stage: Stage) -> Partitioning:
    if stage.high == 1:
        return "single"
    if head.traits.shares_second and branch:
        return "broadcast"
    if head.keyed:
        return "key"
    has_one_number = upstream.parallelism == stage.parallelism and not (upstream.scales or stage.scales)
    return "forward" if has_one_number else "round_robin"


def _depths(specification: Specification) -> dict[int, int]:
    """Return the number of path elements of the positions that each step puts out; operators of `program.py` must match it."""
    depths: dict[int, int] = {}
    has_lateness = specification.lateness_ms > 0
    for step in specification.steps:
        depth = max((depths[before] for before in step.inputs), default=0)
        if (
            step.side == ERRORS and specification.steps[step.inputs[0]].inputs
        ):  # a dead letter keeps the position of its record
            raised = specification.steps[step.inputs[0]]
            depth = max((depths[before] for before in raised.inputs), default=0) + raised.traits.branches
        else:
            depth = depth * (not step.traits.path_anew) + step.path_elements(has_lateness=has_lateness)
        depths[step.index] = depth
    return depths
