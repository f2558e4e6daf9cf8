"""Scaling advice: a policy's proposal for each stage of a running application, with its reason, from the last interval.

Nothing is stored between two requests: a policy that waits for several intervals says so, and `needed` is its eventual result.
The controllers of autoscaled runs get the same measures (`stage_states`); their decisions replace the advice.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from agiledart_dataflow.counts.interval_measures import SECONDS, IntervalMeasures
from agiledart_dataflow.plan.parallelism_request import limits_text
from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stage_plan import Edge, Stage, StagePlan
from agiledart_kernel.instants import SECOND
from agiledart_kernel.limits import KEY_GROUPS, MAX_PARALLELISM
from agiledart_node.records.summary import Reports, measures_of, statistics_of
from agiledart_node.wire.application_responses import StageRow
from agiledart_node.wire.recovery_messages import RecoveryStatus
from agiledart_node.wire.route_responses import routes_of
from agiledart_node.wire.scaling_responses import ScalingMeasurements, ScalingStageRow
from agiledart_scaling.demand import Demand, DemandEdge, EdgeFlow, carried
from agiledart_scaling.kinds.bandwidth import LinkLoad
from agiledart_scaling.kinds.skew import GroupLoad, hot_group, hot_text, is_uneven, share_of
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import InstanceMeasures, StageMeasures, rates_of, shares_of
from agiledart_scaling.one_pass import BUSY_SHARE, StageState
from agiledart_scaling.scaling_policy import ScalingDecision, ScalingPolicy

GREEDY = 0.5
"""Share of the interval: a source without a rate of its own that was blocked so long reads less than there is."""

MAX_TERMS = 32
"""Figures of one decision that are shown."""

LEAST_LOOKED_AT = 100
"""Rows of a stage with a known key group that are needed to call one group hot."""

NOT_YET = "an instance has run for less than 5 s, or its node is silent"
NOT_MEASURED = "not measured: too few rows, or too little work, in the last 5 s"

StageMeasuresByIndex = Mapping[int, Sequence[IntervalMeasures]]
"""Measures of all instances of a stage, by its index; a stage is missing when one of its instances has none."""


def advice(
    plan: StagePlan, specification: Specification, reports: Reports, policy: ScalingPolicy
) -> list[ScalingStageRow]:
    """Return a row for each stage, in the order of the plan."""
    known_measures = {
        stage.index: known for stage in plan.stages if (known := interval_measures(stage, reports)) is not None
    }
    greedy = {
        stage.index: _is_greedy(stage, known_measures, reports) for stage in plan.stages if stage.kind == "source"
    }
    demands = _demands(plan, known_measures, greedy)
    return [_row(plan, stage, specification, known_measures, demands, policy, greedy) for stage in plan.stages]


def stage_states(plan: StagePlan, reports: Reports, held: Collection[str]) -> list[StageState]:
    """Return a controller's input for the stages that may scale by themselves, in the order of the plan.

    Args:
        held: stages to which a user gave a number.
    """
    known_measures = {
        stage.index: known for stage in plan.stages if (known := interval_measures(stage, reports)) is not None
    }
    greedy = {
        stage.index: _is_greedy(stage, known_measures, reports) for stage in plan.stages if stage.kind == "source"
    }
    demands = _demands(plan, known_measures, greedy)
    return [
        replace(
            _state(plan, stage, known_measures, demands, stage.name in held),
            link=link_load(stage, known_measures.get(stage.index, ()), reports),
        )
        for stage in plan.stages
        if stage.scales
    ]


def link_load(stage: Stage, known: Sequence[IntervalMeasures], reports: Reports) -> LinkLoad:
    """Return the load of the fullest link over which an instance of a stage sends, and the busy share of that instance.

    Links into the stage do not count: more instances would wait behind the same uplink of their sender.
    """
    fullest = LinkLoad()
    for instance, measures in enumerate(known):
        for route in routes_of(reports.get((stage.index, instance), {})):
            use = max((circuit.use for circuit in route.circuits if circuit.in_use), default=0.0)
            if use > fullest.busiest_link:
                busy, rows = measures.busy_ns / measures.span_ns, measures.rows * SECOND / measures.span_ns
                name = f"of {stage.name}.{instance} to {route.to}"
                fullest = LinkLoad(use, busy, name=name, instance=instance, rows=rows)
    return fullest


def _state(
    plan: StagePlan,
    stage: Stage,
    known_measures: StageMeasuresByIndex,
    demands: Mapping[str, Demand | None],
    keeps_number: bool,
) -> StageState:
    # A stage without measures, demand or rates has no input for the policy, only the reason why.
    limits, known, demand = Limits(stage.low, stage.high), known_measures.get(stage.index), demands[str(stage.index)]
    instances = [_instance(measures) for measures in known or ()]
    rates = rates_of(instances)
    if known is None or demand is None or rates is None:
        unknown_reason = (
            NOT_YET if known is None else _unknown(plan, stage, demands) if demand is None else NOT_MEASURED
        )
        must_do = None if known is None else demand  # a link is unknown, too, where the stage is
        return StageState(
            stage.name, limits, None, unknown_reason, must_do, has_state=stage.has_state, keeps_number=keeps_number
        )
    return StageState(
        stage.name,
        limits,
        StageMeasures(rates, shares_of(instances), demand.offered, demand.backlog),
        measured=tuple(measures.true_rate for measures in instances),
        owners=tuple(stage.owners),
        groups=_groups(known),
        moves_groups=False,
        has_state=stage.has_state,
        keeps_number=keeps_number,
    )


def interval_measures(stage: Stage, reports: Reports) -> list[IntervalMeasures] | None:
    """Return the measures of all instances of a stage; None: one of them has none."""
    measures = [measures_of(reports.get((stage.index, index), {})) for index in range(stage.parallelism)]
    known = [each_measures for each_measures in measures if each_measures is not None]
    return known if len(known) == len(measures) else None


def _is_greedy(stage: Stage, known_measures: StageMeasuresByIndex, reports: Reports) -> bool:
    """Return whether a source reads as fast as it can and is blocked, so its input rate is unknown, only what it could read."""
    if stage.index not in known_measures:
        return False
    (measures,) = known_measures[stage.index]
    statistics = statistics_of(reports.get((stage.index, 0), {}))
    is_paced = statistics is not None and statistics.source is not None and statistics.source.paced
    return not is_paced and measures.blocked_ns >= GREEDY * measures.span_ns


def _demands(
    plan: StagePlan, known_measures: StageMeasuresByIndex, greedy: Mapping[int, bool]
) -> dict[str, Demand | None]:
    sources: dict[str, Demand | None] = {}
    for stage in plan.stages:
        if stage.kind == "source":
            sources[str(stage.index)] = _of_source(known_measures.get(stage.index), is_greedy=greedy[stage.index])
    waiting = {str(stage.index): _waiting(plan, stage, known_measures) for stage in plan.stages}
    edges = [
        DemandEdge(str(edge.source), str(edge.target), _flows(plan, edge, known_measures))
        for edge in plan.edges
        if not edge.side
    ]
    return carried([str(stage.index) for stage in plan.stages], edges, sources, waiting)


def _of_source(known_measures: Sequence[IntervalMeasures] | None, *, is_greedy: bool) -> Demand | None:
    if known_measures is None:
        return None
    (measures,) = known_measures
    waiting = tuple(float(rows) for rows in measures.waiting)
    if not is_greedy:
        return Demand(measures.offered, waiting)
    rate = InstanceMeasures(measures.rows, 0, measures.busy_ns).true_rate
    return None if rate is None else Demand((rate,) * SECONDS, waiting)


def _waiting(plan: StagePlan, stage: Stage, known_measures: StageMeasuresByIndex) -> list[float]:
    """Return the rows in a stage's inboxes, and in the senders' channels towards it, at the end of each second."""
    rows = [0.0] * SECONDS
    parts = [measures.waiting for measures in known_measures.get(stage.index, ())] if stage.kind != "source" else []
    for edge in plan.incoming(stage.index):
        parts += [
            path.leaving
            for measures in known_measures.get(edge.source, ())
            for path in measures.edges
            if path.edge == edge.index
        ]
    for part in parts:
        rows = [before + more for before, more in zip(rows, part, strict=True)]
    return rows


def _flows(plan: StagePlan, edge: Edge, known_measures: StageMeasuresByIndex) -> tuple[EdgeFlow, ...]:
    """Return rows into the stage before an edge, and over the edge, in each interval that all of its instances report."""
    senders = known_measures.get(edge.source, ())
    count = min((len(measures.taken) for measures in senders), default=0)
    copies = plan.stages[edge.target].parallelism if edge.partitioning == "broadcast" else 1
    flows = []
    for back in range(count, 0, -1):
        sent = sum(path.sent[-back] for measures in senders for path in measures.edges if path.edge == edge.index)
        flows.append(EdgeFlow(sum(measures.taken[-back] for measures in senders), sent // copies))
    return tuple(flows)


def _instance(measures: IntervalMeasures) -> InstanceMeasures:
    sent = sum(path.sent[-1] for path in measures.edges)
    free_ns = measures.span_ns - measures.blocked_ns
    return InstanceMeasures(
        measures.rows,
        sent,
        measures.busy_ns,
        measures.blocked_ns,
        measures.waiting[-1],
        pressed_ns=free_ns if all(measures.waiting) else 0,
    )


def _groups(known: Sequence[IntervalMeasures]) -> tuple[GroupLoad, ...]:
    """Return the rows per second of each key group, as far as a sample shows; empty when the sample is too small."""
    rates = [0.0] * KEY_GROUPS
    looked_at = 0
    for measures in known:
        total = sum(rows for _, rows in measures.groups)
        looked_at += total
        if measures.rows and not total:
            return ()
        for group, rows in measures.groups:
            rates[group] += measures.rows * SECOND / measures.span_ns * rows / total
    return tuple(map(GroupLoad, rates)) if looked_at >= LEAST_LOOKED_AT else ()


def _hot(measures: StageMeasures, groups: tuple[GroupLoad, ...]) -> int | None:
    """Return the key group that is too much for one instance, when it is the cause of an uneven load."""
    if not groups or not is_uneven(measures.capacity, measures.balanced_capacity):
        return None
    return hot_group(groups, measures.mean_rate, BUSY_SHARE)


def _row(
    plan: StagePlan,
    stage: Stage,
    specification: Specification,
    known_measures: StageMeasuresByIndex,
    demands: Mapping[str, Demand | None],
    policy: ScalingPolicy,
    greedy: Mapping[int, bool],
) -> ScalingStageRow:
    limits = [stage.low, stage.high]
    known, demand = known_measures.get(stage.index), demands[str(stage.index)]
    row = ScalingStageRow(stage.name, stage.kind, stage.parallelism, limits, stage.scales, ScalingMeasurements())
    if known is None:
        return msgspec.structs.replace(row, unknown_reason=NOT_YET)
    instances = [_instance(interval) for interval in known]
    figures = _figures(plan, stage, instances, known, demand)
    row = msgspec.structs.replace(row, measures=figures)
    if stage.kind == "source":
        return msgspec.structs.replace(row, why=_of_reading(known[0], is_greedy=greedy[stage.index]))
    if demand is None:
        return msgspec.structs.replace(row, unknown_reason=_unknown(plan, stage, demands))
    rates = rates_of(instances)
    if rates is None:
        return msgspec.structs.replace(row, unknown_reason=NOT_MEASURED)
    measures = StageMeasures(rates, shares_of(instances), demand.offered, demand.backlog)
    runs_once = any(specification.steps[step].traits.runs_once for step in stage.steps)
    most = 1 if runs_once else MAX_PARALLELISM
    decision = policy.decide(measures, Limits(min(stage.low, most), most), None)
    groups = _groups(known)
    hot = _hot(measures, groups)
    advised = msgspec.structs.replace(
        row,
        hot_group=hot,
        hot_share=None if hot is None else round(share_of(groups, hot), 3),
        health_score=_rounded(decision.terms.get("f")),
        needed=round(decision.terms.get("needed", decision.wanted)),
        wanted=max(stage.low, min(stage.high, decision.wanted)),
        why=_why(stage, decision, runs_once=runs_once) if hot is None else hot_text(groups, hot),
    )
    if any(greedy.values()):
        advised = msgspec.structs.replace(
            advised, why=f"{advised.why}; a source reads as fast as it can, so the demand is that"
        )
    return advised


def with_decisions(
    rows: Sequence[ScalingStageRow], statuses: Sequence[Mapping[str, Any]], held: Collection[str]
) -> list[ScalingStageRow]:
    """Return the rows with the decisions of the run's controller, and with the stages to which a user gave a number.

    Args:
        statuses: as another node sent them; malformed ones are ignored.
    """
    known = {status.get("stage"): status for status in statuses}
    return [_with_decision(row, known.get(row.name, {}), row.name in held) for row in rows]


def with_scores(rows: Sequence[StageRow], status: RecoveryStatus | None, held: Collection[str]) -> list[StageRow]:
    """Return the rows of `status` with health scores and wanted numbers."""
    known = {stage_status.get("stage"): stage_status for stage_status in (status.scaling if status is not None else ())}
    return [_with_score(row, known.get(row.name, {}), row.name in held) for row in rows]


def _with_score(row: StageRow, status: Mapping[str, Any], keeps_number: bool) -> StageRow:
    wanted, score = status.get("wanted"), status.get("f")
    if isinstance(wanted, int):
        row = msgspec.structs.replace(row, wanted=wanted, score=score if isinstance(score, float) else None)
    return msgspec.structs.replace(row, keeps_number=keeps_number) if keeps_number else row


def _with_decision(row: ScalingStageRow, status: Mapping[str, Any], keeps_number: bool) -> ScalingStageRow:
    wanted, why, waits_for = status.get("wanted"), status.get("why"), status.get("waits_for")
    if isinstance(wanted, int) and isinstance(why, str) and isinstance(waits_for, str):
        terms = _terms(status)
        is_decided = bool(terms) or not row.unknown_reason  # without figures the reason only says that there are none
        row = msgspec.structs.replace(
            row, wanted=wanted, why=why if is_decided else row.why, waits_for=waits_for, terms=terms
        )
    return msgspec.structs.replace(row, keeps_number=keeps_number) if keeps_number and row.scales else row


def _terms(status: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a decision; empty when they are malformed."""
    terms = status.get("terms")
    if not isinstance(terms, dict) or len(terms) > MAX_TERMS:
        return {}
    return {
        name: float(value) for name, value in terms.items() if isinstance(name, str) and isinstance(value, int | float)
    }


def _figures(
    plan: StagePlan,
    stage: Stage,
    instances: Sequence[InstanceMeasures],
    known: Sequence[IntervalMeasures],
    demand: Demand | None,
) -> ScalingMeasurements:
    rates = rates_of(instances)
    time = sum(interval.span_ns for interval in known)
    edges = [edge for edge in plan.outgoing(stage.index) if not edge.side]
    flows = [flow for edge in edges for flow in _flows(plan, edge, {stage.index: known})]
    taken = sum(flow.rows for flow in flows)
    figures = ScalingMeasurements(
        busy=round(sum(instance.busy_ns for instance in instances) / time, 4),
        blocked=round(sum(instance.blocked_ns for instance in instances) / time, 4),
        selectivity=round(len(edges) * sum(flow.sent for flow in flows) / taken, 4) if taken else None,
    )
    if demand is not None:
        offered, backlog = sum(demand.offered) / SECONDS, round(demand.backlog[-1])
        figures = msgspec.structs.replace(figures, offered=_rounded(offered), backlog=backlog)
    if rates is not None:
        measures = StageMeasures(rates, shares_of(instances), (0.0,), (0.0,))
        rate, capacity = _rounded(measures.mean_rate), _rounded(measures.capacity)
        figures = msgspec.structs.replace(figures, true_rate=rate, capacity=capacity)
    return figures


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def _of_reading(measures: IntervalMeasures, *, is_greedy: bool) -> str:
    if is_greedy:
        return "it reads as fast as it can, so the demand is what it could read"
    if measures.blocked_ns >= GREEDY * measures.span_ns:
        return "it is blocked: there may be more input than it has read, unless it spools or sheds"
    return "it runs once"


def _unknown(plan: StagePlan, stage: Stage, demands: Mapping[str, Demand | None]) -> str:
    """Return why the demand on a stage is not known."""
    for edge in plan.incoming(stage.index):
        if demands[str(edge.source)] is None:
            return f"what is asked of {plan.stages[edge.source].name} is not known"
    names = " and ".join(plan.stages[edge.source].name for edge in plan.incoming(stage.index))
    return f"what {names} makes of a row is not known before {3 * SECONDS} s with rows"


def _why(stage: Stage, decision: ScalingDecision, *, runs_once: bool) -> str:
    """Return the policy's reason, and what prevents the change."""
    needed = round(decision.terms.get("needed", decision.wanted))
    if runs_once:
        step = stage.name.split("+")[0]
        too_much = decision.terms.get("f", 1.0) < 1
        return f"{decision.why}; {step} runs once{', and cannot keep up' if too_much else ''}"
    if needed > stage.high:
        step = stage.name.split("+")[0]
        limits = limits_text((stage.low, min(MAX_PARALLELISM, needed)))
        return f"{decision.why}; planned for {stage.high} at most: --parallelism {step}={limits} when it is submitted"
    if not stage.scales and needed != stage.parallelism:
        return f"{decision.why}; it was given a number, not limits"
    return decision.why
