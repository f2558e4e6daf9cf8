"""Answer to `explain placement`: the asked agent collects loads and reports, and judges the placement as it is now."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.plan.delivery import SAVING
from agiledart_dataflow.plan.placement_rules import PlacementRules
from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.context.config import LIVE_OBJECTIVES
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.forming.network_of_loads import network_of_loads
from agiledart_node.forming.surveyor import Loads, Surveyor
from agiledart_node.hosting.application_watcher import ApplicationWatcher
from agiledart_node.live_placement.measured_topology import rates_of
from agiledart_node.live_placement.placement_explanation import MovableUnit, PlacementExplanation
from agiledart_node.live_placement.run_problem import Reports, RunProblem, run_problem
from agiledart_node.records.application import SPECIFICATION_CODEC, ApplicationRecord
from agiledart_node.records.command_verifier import placement_of
from agiledart_node.records.summary import statistics_of
from agiledart_node.user_commands.status_queries import StatusQueries
from agiledart_node.wire.commands import ExplainPlacement
from agiledart_node.wire.placement_responses import (
    AlternativeRow,
    MoveDecisionRow,
    PlacedLinkRow,
    PlacedStageRow,
    PlacedUnitRow,
    PlacementResponse,
)
from agiledart_placement.files.network_file import network_document
from agiledart_placement.files.topology_file import topology_document
from agiledart_placement.problem.objective import SINGLE, Objective, unknown_name

MAX_HOSTS: Final = 48
"""Nodes that an explanation looks at: the hosts of the application, then the nearest others."""


class PlacementQueries:
    """Explains placements."""

    def __init__(
        self, context: NodeContext, status_queries: StatusQueries, watching: ApplicationWatcher, surveying: Surveyor
    ) -> None:
        self._context, self._status_queries = context, status_queries
        self._watching, self._surveying = watching, surveying

    async def explain(self, request: int, command: ExplainPlacement, principal: Principal) -> None:
        """Answer `explain placement`. Raises CommandRefused."""
        asked = _objective(command.objective)
        record = await self._status_queries.record(command.name, principal, "explain")
        usual = self._context.config.placement_choice(placement_of(record.signed_command)).objective
        objective = asked or Objective(usual)
        record = await self._watching.refresher.refreshed(record)
        if record.is_final or not record.nodes:
            raise CommandRefused(f"{record.name} is {record.state}: only what runs is measured.")
        plan, specification = _decoded(record)
        reports, silent = await self._status_queries.live_reports(record)
        loads = await self._loads(record)
        now = {(place.stage, place.index): record.nodes[place.node].node for place in record.assignment}
        problem = run_problem(
            record.name, plan, specification, reports, network_of_loads(loads, keeps_unknown=True), now
        )
        names = {**record.names(), **{node: state.name for node, state in problem.network.hosts.items()}}
        notes = [*problem.network.notes, *problem.measured.notes]
        evaluation = None
        if problem.missing:
            missing = ", ".join(sorted(names[node] for node in problem.missing))
            notes.append(f"{missing}: runs an instance, and its figures are missing, so nothing is computed")
        elif problem.unknown_links:
            a, b = problem.unknown_links[0]
            notes.append(f"{names[a]} → {names[b]}: no node has measured this delay yet, so nothing is computed")
        else:
            evaluation = problem.explained(objective)
        response = _response(record, objective, problem, names, evaluation, reports, notes, silent)
        status = (await self._status_queries.statuses([record])).get(record.name)
        decisions = () if status is None else status.placement
        self._context.reply(
            request,
            msgspec.structs.replace(
                response,
                decisions=_decision_rows(decisions),
                placed_by_user=list(record.placed_by_user),
                network=network_document(network_of_loads(loads)),
            ),
        )

    async def _loads(self, record: ApplicationRecord) -> Loads:
        """Return loads of the application's hosts and of the nodes nearest to this one, with their round trips."""
        known = {peer.node: peer for peer in self._context.known()}
        peers = {peer.node: known.get(peer.node, peer) for peer in record.hosts()}
        for peer in self._context.nearest_of(self._context.known()):
            if len(peers) < MAX_HOSTS:
                peers.setdefault(peer.node, peer)
        timeout = self._context.config.report_timeout_ns
        return await self._surveying.loads(list(peers.values()), timeout, wants_round_trips=True)


def _decision_rows(decisions: Sequence[Mapping[str, Any]]) -> list[MoveDecisionRow]:
    try:
        return msgspec.convert(list(decisions), list[MoveDecisionRow])
    except msgspec.ValidationError:
        return []  # from a node of another version


def _objective(name: str) -> Objective | None:
    if name in SINGLE and name not in LIVE_OBJECTIVES:
        raise CommandRefused(f"objective {name}: nodes report no prices and no watts.", 2)
    if name and name not in LIVE_OBJECTIVES:
        raise CommandRefused(f"objective {name!r}: {unknown_name(name, LIVE_OBJECTIVES)}", 2)
    return Objective(name) if name else None


def _decoded(record: ApplicationRecord) -> tuple[StagePlan, Specification]:
    try:
        plan = msgspec.msgpack.decode(record.plan, type=StagePlan)
        return plan, SPECIFICATION_CODEC.decode(record.specification)
    except (msgspec.MsgspecError, RemoteProtocolError):
        raise CommandRefused(
            f"The plan of {record.name} cannot be read; another version of agiledart made it."
        ) from None


def _response(
    record: ApplicationRecord,
    objective: Objective,
    problem: RunProblem,
    names: Mapping[NodeId, str],
    evaluation: PlacementExplanation | None,
    reports: Reports,
    notes: Sequence[str],
    silent: Sequence[Peer],
) -> PlacementResponse:
    latencies = LatencyHistogram()
    for report in reports.values():
        statistics = statistics_of(report)
        if statistics is not None and statistics.latency:
            latencies.merge(LatencyHistogram.from_plain(statistics.latency))
    summary = latencies.summary() if latencies.samples else None
    metrics = {} if evaluation is None else {name: round(value, 6) for name, value in evaluation.metrics.items()}
    return PlacementResponse(
        record.name,
        record.version,
        record.state,
        objective.name,
        None if evaluation is None else round(evaluation.value, 6),
        metrics,
        metrics.get("response"),
        None if summary is None else summary.p50,
        None if summary is None else summary.p99,
        [] if evaluation is None else list(evaluation.violations),
        _stage_rows(problem, names),
        [] if evaluation is None else _unit_rows(problem.plan, record, evaluation, names),
        [] if evaluation is None else _link_rows(problem, names),
        [names[peer.node] for peer in silent],
        list(notes),
        {},
        topology_document(problem.pinned_topology(names)),
    )


def _stage_rows(problem: RunProblem, names: Mapping[NodeId, str]) -> list[PlacedStageRow]:
    measured, now = problem.measured, problem.now
    description = measured.description
    return [
        PlacedStageRow(
            stage.name,
            stage.kind,
            [names[now[stage.index, number]] for number in range(stage.parallelism) if (stage.index, number) in now],
            round(description.stages[stage.index].execution_ms, 6),
            measured.time_sources[stage.index],
            round(rates_of(description.loads, description.edges, stage.index), 3),
            measured.rate_sources[stage.index],
            rule_texts(stage.rules),
        )
        for stage in problem.plan.stages
    ]


def rule_texts(rules: PlacementRules) -> list[str]:
    """Return rules about a stage's nodes in words."""
    texts = [f"needs the label {label}" for label in rules.labels]
    texts += [f"only zone {rules.zone}"] if rules.zone else []
    texts += [f"only on {', '.join(rules.on)}"] if rules.on else []
    texts += [f"together with {step}" for step in rules.together_with]
    return texts + [f"shares no {kind} with {step}" for kind, step in rules.apart_from]


def _unit_rows(
    plan: StagePlan, record: ApplicationRecord, evaluation: PlacementExplanation, names: Mapping[NodeId, str]
) -> list[PlacedUnitRow]:
    advice_only = (
        "" if record.by_epoch else f"it is not saved by epochs, so this is advice only (submit it with {SAVING})"
    )
    return [
        PlacedUnitRow(
            [_instance_name(plan.stages[stage], index) for stage, index in unit.instances],
            names[unit.node],
            advice_only,
            _alternative_rows(plan, unit, names),
        )
        for unit in evaluation.units
    ]


def _instance_name(stage: Stage, index: int) -> str:
    return stage.name if stage.parallelism == 1 else f"{stage.name}.{index}"


def _alternative_rows(plan: StagePlan, unit: MovableUnit, names: Mapping[NodeId, str]) -> list[AlternativeRow]:
    return [
        AlternativeRow(names[other.node], round(other.value, 6), round(other.change, 6), list(other.forbidden))
        for other in unit.alternatives
    ]


def _link_rows(problem: RunProblem, names: Mapping[NodeId, str]) -> list[PlacedLinkRow]:
    """Return the links between nodes that rows cross now."""
    crossed: dict[tuple[NodeId, NodeId], bool] = {}
    for edge in problem.plan.edges:
        for (above, _), a in problem.now.items():
            for (below, _), b in problem.now.items():
                if (above, below) == (edge.source, edge.target) and a != b:
                    crossed[a, b] = True
    rows = []
    for a, b in crossed:
        figures = problem.network.view.link(a, b)
        rows.append(PlacedLinkRow(names[a], names[b], figures.delay_ms, figures.source.value))
    return rows
