"""Data beside the rows of an edge: none, event times, or positions. Decided once, when stages are planned.

Positions make results independent of timing, at a cost: a tuple beside each row, its bytes on the wire, a merge that waits
for its slowest input. Edges carry them only where a step downstream can tell the difference.
Source: decision 0014; design of the data path, event time.
"""

from typing import Final

from agiledart_dataflow.data.carries import Carries, most
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan

_UNORDERED_SINKS: Final = frozenset({"null"})
"""Sinks whose results do not show the order of rows."""


def may_delay_watermarks(specification: Specification, plan: StagePlan) -> list[bool]:
    """Return for each edge whether a watermark without rows may wait for the next rows.

    It may where no stage downstream merges channels or reacts to time.
    """
    matters: dict[int, bool] = {}
    for stage in reversed(plan.stages):
        matters[stage.index] = (
            specification.steps[stage.steps[0]].reacts_to_time
            or _has_several_channels(plan, stage)
            or any(matters[edge.target] for edge in plan.outgoing(stage.index))
        )
    return [not matters[edge.target] for edge in plan.edges]


def carried(specification: Specification, plan: StagePlan) -> list[Carries]:
    """Return the contents of each edge of a plan, by the edge's index.

    An input of several channels needs positions when any result downstream shows the order in which its rows are taken.
    One channel alone is in order by itself.
    """
    needs: list[Carries] = ["rows"] * len(plan.edges)
    shows_order: dict[int, bool] = {}
    plain = _plain_stages(specification, plan)
    for stage in reversed(plan.stages):  # a stage comes after those that feed it
        head = specification.steps[stage.steps[0]]
        out_edges = plan.outgoing(stage.index)
        shows_order[stage.index] = (
            _is_order_sensitive_sink(head)
            if stage.kind == "sink"
            else any(shows_order[edge.target] for edge in out_edges)
        )
        required = most(head.needs, *(needs[edge.index] for edge in out_edges))
        times_suffice = required != "times" or stage.kind == "sink" or _preserves_source_order(plan, stage, plain)
        if shows_order[stage.index] and (_has_several_channels(plan, stage) or not times_suffice):
            required = "positions"
        for edge in plan.incoming(stage.index):
            needs[edge.index] = required
    return needs


def _plain_stages(specification: Specification, plan: StagePlan) -> set[int]:
    """Return the stages whose rows come from one source, each caused by one of its records, in the order of these."""
    plain: set[int] = set()
    for stage in plan.stages:
        head = specification.steps[stage.steps[0]]
        if stage.kind == "source" or (head.traits.is_stateless and _preserves_source_order(plan, stage, plain)):
            plain.add(stage.index)
    return plain


def _preserves_source_order(plan: StagePlan, stage: Stage, plain: set[int]) -> bool:
    """Return whether the stage keeps the order of one source.

    Then the order in which keys first come is the order of positions without their time, in which panes close.
    """
    incoming = plan.incoming(stage.index)
    return len(incoming) == 1 and incoming[0].source in plain


def _is_order_sensitive_sink(head: StepSpecification) -> bool:
    return head.connector is None or head.connector.kind not in _UNORDERED_SINKS


def _has_several_channels(plan: StagePlan, stage: Stage) -> bool:
    """Return whether an instance of the stage may ever have several input channels.

    The limits of the stages before it count, because the contents of edges must not change when these stages scale.
    """
    most = [
        1 if edge.partitioning == "forward" else plan.stages[edge.source].high for edge in plan.incoming(stage.index)
    ]
    return sum(most) > 1
