"""Facts of a topology that decide what a failure costs, for a running application and for one that is still a file."""

from collections.abc import Iterable, Mapping
from typing import Final

from agiledart_dataflow.plan.losses import WAIT
from agiledart_dataflow.plan.overload import BLOCK, SPOOL, Overload, overload_of
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import Stage, StagePlan
from agiledart_node.wire.checkpoint_responses import InstanceSnapshotRow
from agiledart_node.wire.recovery_responses import RecoveryFactsResponse, RecoveryStepRow

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
    saved: Iterable[InstanceSnapshotRow] = (),
    standbys: Mapping[str, list[str]] | None = None,
) -> RecoveryFactsResponse:
    """Return the facts on which `explain recovery` is based.

    Args:
        placement: stage → nodes; empty for a topology that does not run.
        version, state: of an application; 0 and "" for a file.
        saved: snapshots that its last checkpoints need, by the names of their stages.
        standbys: stage → nodes that hold its state ready.
    """
    stages = {step: stage for stage in plan.stages for step in stage.steps}
    snapshots = list(saved)
    held = standbys or {}
    rows = [
        _row(step, stages[step.index], placement, snapshots, held)
        for step in specification.steps
        if step.index in stages
    ]
    return RecoveryFactsResponse(specification.name, version, state, delivery, plan.merges_by_position, rows)


def _row(
    step: StepSpecification,
    stage: Stage,
    placement: Mapping[str, list[str]],
    saved: list[InstanceSnapshotRow],
    standbys: Mapping[str, list[str]],
) -> RecoveryStepRow:
    connector = step.connector.connector() if step.connector is not None else None
    overload = overload_of(step.options) or Overload()
    mine = [row for row in saved if row.stage == stage.name and step.traits.has_state]
    largest: dict[int, int] = {}
    for row in mine:
        largest[row.index] = max(row.bytes, largest.get(row.index, 0))
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
        spools=overload.policy == SPOOL,
        bytes=sum(largest.values()),
        replica_nodes=sorted({node for row in mine for node in row.replica_nodes}),
        standby=stage.standby,
        standbys=standbys.get(stage.name, []),
    )
