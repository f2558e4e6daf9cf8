"""Facts of a topology that decide what a failure costs, for a running application and for one that is still a file."""

from collections.abc import Mapping
from typing import Final

from agiledart_dataflow.plan.losses import WAIT
from agiledart_dataflow.plan.overload import BLOCK, SPOOL, Overload, overload_of
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_node.wire.responses import RecoveryFactsResponse, RecoveryStepRow

_CLOCKS: Final = ("clock", "idle_timeout_ms", "max_ahead_ms")
"""Options of a source whose lateness depends on a clock."""


def recovery_facts(
    specification: Specification,
    plan: StagePlan,
    delivery: str,
    placement: Mapping[str, list[str]],
    *,
    version: int = 0,
    state: str = "",
) -> RecoveryFactsResponse:
    """Return the facts on which `explain recovery` is based.

    Args:
        placement: stage → nodes; empty for a topology that does not run.
        version, state: of an application; 0 and "" for a file.
    """
    stages = {step: stage for stage in plan.stages for step in stage.steps}
    rows = [_row(step, stages[step.index], placement) for step in specification.steps if step.index in stages]
    merges = len(specification.sources) > 1 and any(edge.carries == "positions" for edge in plan.edges)
    return RecoveryFactsResponse(specification.name, version, state, delivery, merges, rows)


def _row(step: StepSpecification, stage: Stage, placement: Mapping[str, list[str]]) -> RecoveryStepRow:
    connector = step.connector.connector() if step.connector is not None else None
    overload = overload_of(step.options) or Overload()
    return RecoveryStepRow(
        name=step.name,
        role=step.traits.stage if step.traits.stage != "operator" else "step",
        kind=connector.kind if connector is not None else step.kind,
        connector=connector.url() if connector is not None else "",
        has_log=any(step.option(name) for name in _CLOCKS) or overload.policy == SPOOL,
        sheds=overload.policy not in (BLOCK, SPOOL) or overload.spool_full != BLOCK,
        has_state=step.traits.has_state,
        keyed=step.keyed,
        nodes=list(dict.fromkeys(placement.get(stage.name, []))),
        if_lost=stage.if_lost or WAIT,
    )
