"""Topology of `agiledart place` out of a plan, the reports of its instances, and the builder's expectations.

Measurements count; else the builder's expectations (`topology.expect`); else 1 row/s, a row for each row, and no time.
Bytes of rows are those of encoded rows. They count only where every stream has them: a sum of rows and bytes would be neither.

Source: spec of placement §10.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agiledart_dataflow.counts.interval_measures import IntervalMeasures
from agiledart_dataflow.plan.placement_rules import ExpectedFigures
from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stage_plan import Edge, Stage, StagePlan
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_node.records.stage_rules import ruled_demand
from agiledart_node.user_commands.scaling_advice import interval_measures
from agiledart_placement.files.topology_file import TopologyDescription, stream_loads
from agiledart_placement.problem.request import StageDemand, StreamLoad

Reports = Mapping[tuple[int, int], Mapping[str, Any]]

MEASURED, EXPECTED, UNKNOWN = "measured", "expected", "unknown"
"""Sources of a figure; `unknown`: the default stands for it."""


@dataclass(frozen=True, slots=True)
class MeasuredTopology:
    """A topology, and where its figures come from.

    Attributes:
        description: as `agiledart place` takes it.
        time_sources, rate_sources: by stage: source of its time for a row, and of the rows that leave it (a sink: that enter it).
        notes: remarks for the user.
    """

    description: TopologyDescription
    time_sources: tuple[str, ...]
    rate_sources: tuple[str, ...]
    notes: tuple[str, ...]


def measured_topology(
    name: str,
    plan: StagePlan,
    specification: Specification,
    reports: Reports,
    speeds: Mapping[tuple[int, int], float],
    nodes: Mapping[str, NodeId],
) -> MeasuredTopology:
    """Return the topology of an application.

    Args:
        reports: (stage, index) → report; empty: nothing runs yet.
        speeds: (stage, index) → speed of its node, by which measured times are converted to the reference; missing: 1.
        nodes: ids of known nodes by name, for rules.
    """
    known = {s.index: measures for s in plan.stages if (measures := interval_measures(s, reports)) is not None}
    expected = [_expected(stage, specification) for stage in plan.stages]
    times = [_time_ms(stage, known.get(stage.index), speeds, expected[stage.index]) for stage in plan.stages]
    stages = tuple(
        ruled_demand(
            StageDemand(
                stage.index,
                stage.name,
                stage.parallelism,
                execution_ms=times[stage.index][0],
                selectivity=_or(expected[stage.index].selectivity, 1.0),
            ),
            plan,
            nodes,
        )
        for stage in plan.stages
    )
    edges = [(edge.source, edge.target) for edge in plan.edges]
    measured = [_rate(edge, plan, known.get(edge.source)) for edge in plan.edges]
    source_rates = [_or(expected[s.index].rows_per_s, 1.0) if s.kind == "source" else 0.0 for s in plan.stages]
    measured_sizes = [_row_bytes(edge, known.get(edge.source)) for edge in plan.edges]
    sizes = [
        expected[edge.source].bytes if size is None else size
        for edge, size in zip(plan.edges, measured_sizes, strict=True)
    ]
    has_sizes = bool(sizes) and all(size is not None for size in sizes)
    streams = [(rate, _or(size, 1.0) if has_sizes else 1.0) for rate, size in zip(measured, sizes, strict=True)]
    loads = stream_loads(stages, source_rates, edges, streams)
    notes = (
        []
        if has_sizes
        else ["bytes of rows are not known yet: traffic and usage count rows (topology.expect(step, bytes=…))"]
    )
    return MeasuredTopology(
        TopologyDescription(name, name, stages, _on(stages, nodes), tuple(edges), loads, tuple(source_rates)),
        tuple(source for _, source in times),
        tuple(_rate_source(stage, plan, measured, expected) for stage in plan.stages),
        tuple(notes),
    )


def _on(stages: Sequence[StageDemand], nodes: Mapping[str, NodeId]) -> tuple[tuple[str, ...] | None, ...]:
    names = {node: name for name, node in nodes.items()}
    return tuple(
        None if stage.candidates is None else tuple(names[node] for node in stage.candidates) for stage in stages
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _expected(stage: Stage, specification: Specification) -> ExpectedFigures:
    """Return what the builder expects of a stage: times add up, selectivities multiply, rows and bytes are the last step's."""
    figures = [specification.steps[step].expected for step in stage.steps]
    times = [figure.ms for figure in figures if figure.ms is not None]
    shares = [figure.selectivity for figure in figures if figure.selectivity is not None]
    selectivity = 1.0
    for share in shares:
        selectivity *= share
    return ExpectedFigures(
        ms=sum(times) if times else None,
        rows_per_s=next((figure.rows_per_s for figure in figures if figure.rows_per_s is not None), None),
        selectivity=selectivity if shares else None,
        bytes=figures[-1].bytes,
    )


def _time_ms(
    stage: Stage,
    known: Sequence[IntervalMeasures] | None,
    speeds: Mapping[tuple[int, int], float],
    expected: ExpectedFigures,
) -> tuple[float, str]:
    """Return the time for one row on the reference, and its source."""
    rows = sum(measures.rows for measures in known or ())
    if known is not None and rows:
        busy = sum(measures.busy_ns * speeds.get((stage.index, index), 1.0) for index, measures in enumerate(known))
        return busy / rows / MILLISECOND, MEASURED
    return (0.0, UNKNOWN) if expected.ms is None else (expected.ms, EXPECTED)


def _rate(edge: Edge, plan: StagePlan, senders: Sequence[IntervalMeasures] | None) -> float | None:
    """Return rows per second over an edge in the last interval; None: not measured, or nothing has passed its source yet."""
    if senders is None or not any(measures.rows for measures in senders):
        return None
    rate = sum(
        path.sent[-1] * SECOND / measures.span_ns
        for measures in senders
        for path in measures.edges
        if path.edge == edge.index
    )
    copies = plan.stages[edge.target].parallelism if edge.partitioning == "broadcast" else 1
    return rate / copies


def _row_bytes(edge: Edge, senders: Sequence[IntervalMeasures] | None) -> float | None:
    """Return the mean bytes of a row on an edge; None: no sender has encoded rows yet."""
    sizes = [
        path.row_bytes
        for measures in senders or ()
        for path in measures.edges
        if path.edge == edge.index and path.row_bytes
    ]
    return sum(sizes) / len(sizes) if sizes else None


def _rate_source(
    stage: Stage, plan: StagePlan, measured: Sequence[float | None], expected: Sequence[ExpectedFigures]
) -> str:
    edges = plan.outgoing(stage.index) or plan.incoming(stage.index)
    if edges and all(measured[edge.index] is not None for edge in edges):
        return MEASURED
    has_hint = expected[stage.index].rows_per_s is not None or expected[stage.index].selectivity is not None
    return EXPECTED if has_hint else UNKNOWN


def rates_of(loads: Sequence[StreamLoad], edges: Sequence[tuple[int, int]], stage: int) -> float:
    """Return the rows per second that leave a stage, or enter it where none leave."""
    leaving = [load.rate for load, (above, _) in zip(loads, edges, strict=True) if above == stage]
    entering = [load.rate for load, (_, below) in zip(loads, edges, strict=True) if below == stage]
    return max(leaving) if leaving else sum(entering)
