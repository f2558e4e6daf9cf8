"""Which stages run once whatever is asked: sources, sinks, and steps that must see all rows. Told before anything is planned."""

from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.errors import TopologyError
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.wire.commands import ScaleStage


def refuse_non_parallel(plan: StagePlan, specification: Specification, command: ScaleStage) -> None:
    """Raises CommandRefused where a stage cannot have what is asked since it runs once, or is not there."""
    try:
        stage = plan.stage_named(command.stage)
    except TopologyError as error:
        raise CommandRefused(str(error), 2) from None
    if not command.is_auto and command.number == stage.parallelism:
        return  # it is so already, which is no mistake
    for step in (specification.steps[index] for index in stage.steps):
        if step.traits.runs_once:
            what = stage.kind if stage.kind != "operator" else step.kind
            because = "" if stage.kind != "operator" else ", which has to see all rows"
            raise CommandRefused(f"{step.name} runs once: it is a {what}{because}.", 2)
