"""Check for stages that always run once: sources, sinks, and steps that must see all rows. It runs before anything is planned."""

from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.errors import TopologyError
from agiledart_node.context.node_context import CommandRefused
from agiledart_node.wire.commands import ScaleStage


def refuse_non_parallel(plan: StagePlan, specification: Specification, command: ScaleStage) -> None:
    """Raise CommandRefused when a stage does not exist, or runs once and so cannot have the requested number of instances."""
    try:
        stage = plan.stage_named(command.stage)
    except TopologyError as error:
        raise CommandRefused(str(error), 2) from None
    if not command.is_auto and command.number == stage.parallelism:
        return  # the stage has that number already, which is no error
    for step in (specification.steps[index] for index in stage.steps):
        if step.traits.runs_once:
            description = stage.kind if stage.kind != "operator" else step.kind
            reason = "" if stage.kind != "operator" else ", which has to see all rows"
            raise CommandRefused(f"{step.name} runs once: it is a {description}{reason}.", 2)
