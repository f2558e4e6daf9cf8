"""A verified submission: from wire forms to stages, edges and pins. User code never runs here."""

from dataclasses import dataclass

import msgspec

from agiledart_dataflow.plan.paths import named
from agiledart_dataflow.plan.specification import FORMAT, Specification, release
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.stages import expand_parallelism, plan_stages
from agiledart_kernel.errors import RemoteProtocolError, TopologyError
from agiledart_kernel.limits import (
    MAX_APPLICATION_NAME,
    MAX_BUNDLE_BYTES,
    MAX_STAGES,
)
from agiledart_kernel.name_patterns import is_application_name
from agiledart_node.context.node_context import CommandRefused, NodeContext
from agiledart_node.records.application import SPECIFICATION_CODEC, StageEntry
from agiledart_node.wire.commands import Submit

MAX_INSTANCES = 4_096
"""Instances of one application: the record must contain the node of each of them."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A valid submission.

    Args:
        name: of the application.
        specification, plan: in their wire forms.
        stages, edges: the graph of stages; each edge once.
        pins: for each stage the word that selects its node; `""`: the asked agent; None: free.
        digest: of the specification, hex.
        relayed_by: (step, node) where rows of a step may be relayed by that node alone.
    """

    name: str
    specification: bytes
    plan: bytes
    stages: tuple[StageEntry, ...]
    edges: tuple[tuple[int, int], ...]
    pins: tuple[str | None, ...]
    digest: str
    relayed_by: tuple[tuple[str, str], ...] = ()

    @property
    def stage_plan(self) -> StagePlan:
        """The plan, decoded."""
        return msgspec.msgpack.decode(self.plan, type=StagePlan)

    @property
    def sources(self) -> tuple[int, ...]:
        """Stages without an upstream stage."""
        fed = {below for _, below in self.edges}
        return tuple(stage for stage in range(len(self.stages)) if stage not in fed)

    @property
    def sinks(self) -> tuple[int, ...]:
        """Stages without a downstream stage."""
        feeding = {above for above, _ in self.edges}
        return tuple(stage for stage in range(len(self.stages)) if stage not in feeding)

    def reached_from(self, stage: int) -> tuple[int, ...]:
        """Return the stages downstream of a stage, itself included, sorted."""
        seen = {stage: True}
        queue = [stage]
        while queue:
            above = queue.pop()
            for upstream, below in self.edges:
                if upstream == above and below not in seen:
                    seen[below] = True
                    queue.append(below)
        return tuple(sorted(seen))


def blueprint_of(command: Submit, here: NodeContext) -> Blueprint:
    """Validate a submission and split it into stages.

    Raises:
        CommandRefused: with the message for the user.
    """
    if len(command.bundle) > MAX_BUNDLE_BYTES:
        raise CommandRefused(f"The bundle has {len(command.bundle):,} bytes; the limit is {MAX_BUNDLE_BYTES:,}.", 2)
    specification = _decoded(command.specification, here)
    name = command.name or specification.name
    if not is_application_name(name):
        raise CommandRefused(
            f"{name!r} is not a valid name of an application: use 1 to {MAX_APPLICATION_NAME} letters, digits, dots, "
            "dashes and underscores, beginning with a letter or digit.",
            2,
        )
    try:
        plan = plan_stages(specification, expand_parallelism(specification, command.parallelism))
    except TopologyError as error:
        raise CommandRefused(str(error), 2) from None
    except (ValueError, LookupError, TypeError) as error:
        raise CommandRefused(f"The specification of {name} is invalid: {error}", 2) from None
    count = sum(stage.parallelism for stage in plan.stages)
    if count > MAX_INSTANCES:
        raise CommandRefused(f"{name} would have {count:,} instances; the limit is {MAX_INSTANCES:,}.", 2)
    blueprint = Blueprint(
        name,
        command.specification,
        msgspec.msgpack.encode(plan),
        tuple(StageEntry(stage.name, stage.parallelism, stage.kind) for stage in plan.stages),
        tuple(sorted({(edge.source, edge.target) for edge in plan.edges})),
        _pins(specification, plan),
        plan.digest.hex(),
        tuple((plan.stages[edge.source].name, name) for edge in plan.edges for name in named(edge.paths)),
    )
    for stage in (*blueprint.sources, *blueprint.sinks):
        if blueprint.stages[stage].kind not in ("source", "sink"):
            raise CommandRefused(f"{blueprint.stages[stage].name} has no source upstream or no sink downstream.", 2)
    return blueprint


def _decoded(raw: bytes, here: NodeContext) -> Specification:
    try:
        specification = SPECIFICATION_CODEC.decode(raw)
    except RemoteProtocolError as error:
        raise CommandRefused(f"The specification cannot be read ({error}).", 2) from None
    if specification.format != FORMAT:
        raise CommandRefused(
            f"{here.me.name or here.me.node.short} runs {release(here.config.software, FORMAT)}, you submitted with specification "
            f"{specification.format}: install the same agiledart on both sides.",
            2,
        )
    names = [step.name for step in specification.steps]
    sound = (
        0 < len(names) <= 4 * MAX_STAGES
        and all(names)
        and len(frozenset(names)) == len(names)
        and all(
            step.index == position and all(0 <= before < position for before in step.inputs)
            for position, step in enumerate(specification.steps)
        )
    )
    if not sound:
        raise CommandRefused(
            "The specification is invalid: steps are out of order, without a name or with the same name.", 2
        )
    return specification


def _pins(specification: Specification, plan: StagePlan) -> tuple[str | None, ...]:
    pins: list[str | None] = []
    for stage in plan.stages:
        head = specification.steps[stage.steps[0]]
        at = stage.at or (head.connector.at if head.connector is not None else "")
        pins.append(at if at or stage.kind != "operator" else None)
    return tuple(pins)


def with_limits(plan: bytes) -> tuple[str, ...]:
    """Return the stages that could scale. They keep their number until a user permits scaling, because it may duplicate rows."""
    return tuple(stage.name for stage in msgspec.msgpack.decode(plan, type=StagePlan).stages if stage.scales)
