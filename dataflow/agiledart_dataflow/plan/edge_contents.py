"""What travels beside the rows of an edge: nothing, event times, or positions. Decided once, when stages are planned.

Positions make results independent of timing, and cost: a tuple beside each row, its bytes on the wire, a merge that
waits for its slowest input. They are carried only where somebody downstream of the edge can tell the difference.
Source: decision 0014; design of the data path, event time.
"""

from typing import Final

from agiledart_dataflow.data.carries import Carries, most
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan

_UNORDERED_SINKS: Final = frozenset({"null"})
"""Sinks in whose results the order of rows does not show."""


def may_delay_watermarks(specification: Specification, plan: StagePlan) -> list[bool]:
    """For each edge: may a mark without rows wait for the next rows? Yes where nobody downstream merges or minds time."""
    matters: dict[int, bool] = {}
    for stage in reversed(plan.stages):
        matters[stage.index] = (
            specification.steps[stage.steps[0]].reacts_to_time
            or _has_several_channels(plan, stage)
            or any(matters[edge.target] for edge in plan.outgoing(stage.index))
        )
    return [not matters[edge.target] for edge in plan.edges]


def carried(specification: Specification, plan: StagePlan) -> list[Carries]:
    """What each edge of a plan carries, by the edge's index.

    An input of several channels needs positions when the order in which its rows are taken shows anywhere downstream.
    One channel alone is in order by itself.
    """
    needs: list[Carries] = ["rows"] * len(plan.edges)
    shows: dict[int, bool] = {}
    plain = _plain_stages(specification, plan)
    for stage in reversed(plan.stages):  # a stage comes after those that feed it
        head = specification.steps[stage.steps[0]]
        outgoing = plan.outgoing(stage.index)
        shows[stage.index] = (
            _is_order_sensitive_sink(head) if stage.kind == "sink" else any(shows[edge.target] for edge in outgoing)
        )
        need = most(head.needs, *(needs[edge.index] for edge in outgoing))
        times_do = need != "times" or stage.kind == "sink" or _preserves_source_order(plan, stage, plain)
        if shows[stage.index] and (_has_several_channels(plan, stage) or not times_do):
            need = "positions"
        for edge in plan.incoming(stage.index):
            needs[edge.index] = need
    return needs


def _plain_stages(specification: Specification, plan: StagePlan) -> set[int]:
    """Stages whose rows come from one source, each caused by one of its records, in the order of these."""
    plain: set[int] = set()
    for stage in plan.stages:
        head = specification.steps[stage.steps[0]]
        if stage.kind == "source" or (head.traits.is_stateless and _preserves_source_order(plan, stage, plain)):
            plain.add(stage.index)
    return plain


def _preserves_source_order(plan: StagePlan, stage: Stage, plain: set[int]) -> bool:
    """Then the order in which keys first come is the order of positions without their time, in which panes close."""
    incoming = plan.incoming(stage.index)
    return len(incoming) == 1 and incoming[0].source in plain


def _is_order_sensitive_sink(head: StepSpecification) -> bool:
    return head.connector is None or head.connector.kind not in _UNORDERED_SINKS


def _has_several_channels(plan: StagePlan, stage: Stage) -> bool:
    """Whether an instance of it may ever have: what edges carry must not change when the stages before it scale."""
    most = [
        1 if edge.partitioning == "forward" else plan.stages[edge.source].high for edge in plan.incoming(stage.index)
    ]
    return sum(most) > 1
