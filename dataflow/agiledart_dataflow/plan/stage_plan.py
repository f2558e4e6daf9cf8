"""Stages and edges as data: the parts of a topology, and the channels between them. The same on every node."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Literal

import msgspec

from agiledart_dataflow.data.carries import Carries, most
from agiledart_dataflow.data.partitioning import Owners
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.plan.paths import AUTO, Paths
from agiledart_dataflow.plan.placement_rules import NO_RULES, PlacementRules
from agiledart_dataflow.state.owner_table import groups_of, next_owners, owners_by_key, owners_round_robin
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.limits import MAX_PARALLELISM

Partitioning = Literal["forward", "key", "round_robin", "single", "broadcast"]
"""Choice of the instance for a row: the same index, by key, in turn, the only one, all of them."""

StageKind = Literal["source", "operator", "sink"]

ERRORS = "errors"
"""Tag of the side output that a step's dead letters take."""

POSITIONS_COST = "4 to 8 % of the time of a job that does little work per row (docs/how-to/scaling.md)"
"""Cost of limits in a job with one instance of each stage, measured by `python -m benchmarks.limits_costs` (decision 0020)."""


def member(generation: int, index: int) -> int:
    """Return the number of an instance in channels: its index in the first generation, a larger number in each later one."""
    return (generation - 1) * MAX_PARALLELISM + index


def index_of(number: int) -> int:
    """Return the index, within its generation, of the instance with this channel number."""
    return number % MAX_PARALLELISM


def generation_of(number: int) -> int:
    """Return the generation of the instance with this channel number."""
    return number // MAX_PARALLELISM + 1


class Stage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Chain of fused steps; each of its instances is placed on a node.

    Attributes:
        index: its place in `StagePlan.stages`; stages that feed it come before.
        name: its steps, joined with "+".
        kind: source, operator or sink.
        steps: indices of its steps, in the order in which rows pass them.
        parallelism: number of its instances.
        keyed: True when its instances own key groups.
        has_state: True when an instance of it remembers rows.
        at: the node to which it is pinned, or "".
        generation: number of its present assignment of instances to nodes, from 1; grows at a barrier while rows flow.
        low, high: limits of `parallelism`, within which its edges need not be planned anew.
        scales: the user gave it limits, and it may be scaled without a command.
        owners: owner table of this generation; empty where it can have one instance only.
        if_lost: policy when its node (of a source or sink) or its state is lost, see `losses`; "": the run waits.
        rules: about its nodes; they name steps, not stages.
        standby: hosts that hold the state of each instance, to take it over; 0 or 1.
    """

    index: int
    name: str
    kind: StageKind
    steps: tuple[int, ...]
    parallelism: int = 1
    keyed: bool = False
    has_state: bool = False
    at: str = ""
    generation: int = 1
    low: int = 1
    high: int = 1
    scales: bool = False
    owners: Owners = b""
    if_lost: str = ""
    rules: PlacementRules = NO_RULES
    standby: int = 0

    def first_owners(self) -> Owners:
        """Return the owner table of the first generation."""
        if self.high == 1:
            return b""
        return owners_by_key(self.parallelism) if self.keyed else owners_round_robin(self.parallelism)

    def groups(self, index: int) -> tuple[int, ...]:
        """Return the key groups of one instance; () where there is no table."""
        return groups_of(self.owners, index)

    def with_instances(self, number: int) -> "Stage":
        """Return the stage with another number of instances: the first ones stay, and few groups move."""
        if number == self.parallelism:
            return self
        remaining = range(min(number, self.parallelism))
        return msgspec.structs.replace(self, parallelism=number, owners=next_owners(self.owners, remaining, number))


class Edge(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Rows from one stage to another.

    Attributes:
        index: its place in `StagePlan.edges`.
        source, target: indices of the stages.
        partitioning: how rows choose an instance of the target.
        row_type: structural text of the rows' type.
        depth: number of path elements of the positions on it.
        padding: elements that the target appends to each position (a union does).
        carries: data beside its rows.
        side: "" for the rows that the last step of the stage puts out; "step/tag" for a side output of one of its steps.
        lazy_watermarks: a watermark without rows may wait for the next rows.
        paths: allowed paths for its rows between two nodes.
    """

    index: int
    source: int
    target: int
    partitioning: Partitioning
    row_type: str
    depth: int
    padding: Position = ()
    carries: Carries = "positions"
    side: str = ""
    lazy_watermarks: bool = False
    paths: Paths = (AUTO,)


class StagePlan(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Stages and edges of one topology; the same on every node.

    Attributes:
        application: the topology's name.
        digest: of the specification that was planned.
        stages: in topological order.
        edges: between the stages.
    """

    application: str
    digest: bytes
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]

    def outgoing(self, stage: int) -> tuple[Edge, ...]:
        """Return the edges that leave a stage."""
        return tuple(edge for edge in self.edges if edge.source == stage)

    def incoming(self, stage: int) -> tuple[Edge, ...]:
        """Return the edges that enter a stage."""
        return tuple(edge for edge in self.edges if edge.target == stage)

    @property
    def merges_by_position(self) -> bool:
        """True when rows of several sources carry positions, so that a merge may take rows that lie behind a barrier."""
        sources = sum(stage.kind == "source" for stage in self.stages)
        return sources > 1 and any(edge.carries == "positions" for edge in self.edges)

    def carries(self, stage: int) -> Carries:
        """Return the data beside the rows inside a stage: that of its inputs, at a source that which its outputs need."""
        incoming = self.incoming(stage)
        return incoming[0].carries if incoming else most(*(edge.carries for edge in self.outgoing(stage)))

    def members(self, stage: int) -> range:
        """Return the channel numbers of a stage's instances in its present generation."""
        first = member(self.stages[stage].generation, 0)
        return range(first, first + self.stages[stage].parallelism)

    def inputs(self, stage: int, index: int) -> tuple[tuple[int, int], ...]:
        """Return (edge, upstream instance) of every channel that enters an instance; `index` is that within its generation."""
        return tuple(
            (edge.index, source)
            for edge in self.incoming(stage)
            for source in self.members(edge.source)
            if edge.partitioning != "forward" or index_of(source) == index
        )

    def targets(self, edge: int, source: int) -> range:
        """Return the instances of the target stage to which an instance sends over an edge."""
        members = self.members(self.edges[edge].target)
        if self.edges[edge].partitioning == "forward":
            at = index_of(source)
            return members[at : at + 1]
        return members

    def followers(self, edge: int, source: int) -> tuple[int, ...]:
        """Return the instances whose channels continue a channel of an instance of the previous generation.

        These are all instances, since all of the previous generation stopped at one frontier. With `forward` inputs it is the
        partner alone, since each instance gets rows of its own partner only.
        """
        stage = self.edges[edge].source
        if any(incoming.partitioning == "forward" for incoming in self.incoming(stage)):
            return (self.members(stage)[index_of(source)],)
        return tuple(self.members(stage))

    def channels(self) -> Iterator[tuple[int, int, int]]:
        """Yield (edge, source instance, target instance) of every channel."""
        for edge in self.edges:
            for source in self.members(edge.source):
                for target in self.targets(edge.index, source):
                    yield edge.index, source, target

    def next_generations(self, numbers: Mapping[str, int]) -> "StagePlan":
        """Return the plan in which the named stages, given by their own name or a step's, have a new generation.

        A stage gets another number of instances with few groups moved, or the same number and table at other places.

        Raises:
            TopologyError: as `with_instances`, and for a stage that cannot move while rows flow.
        """
        plan = self.with_instances(numbers)
        stages = list(plan.stages)
        for index in dict.fromkeys(self.stage_named(name).index for name in numbers):
            stage = stages[index]
            if stage.kind != "operator":
                raise TopologyError(f"{stage.name} is a {stage.kind}: it stays where it is while rows flow")
            stages[index] = msgspec.structs.replace(stage, generation=stage.generation + 1)
        return msgspec.structs.replace(plan, stages=tuple(stages))

    def with_instances(self, numbers: Mapping[str, int]) -> "StagePlan":
        """Return the plan with other numbers of instances, by name of a stage or step; edges stay as they are.

        Raises:
            TopologyError: a number outside the limits for which its edges were planned, or outside 1 to 128; or an edge of
                the stage is `forward`.
        """
        stages = list(self.stages)
        for name, number in numbers.items():
            stage = self.stage_named(name)
            self._check_parallelism(stage, number)
            stages[stage.index] = stages[stage.index].with_instances(number)
        return msgspec.structs.replace(self, stages=tuple(stages))

    def _check_parallelism(self, stage: Stage, number: int) -> None:
        if number == stage.parallelism:
            return
        step = stage.name.split("+")[0]
        if stage.high == 1 and not stage.scales and stage.kind != "operator":
            raise TopologyError(f"{step} runs once: it is a {stage.kind}")
        if not stage.low <= number <= stage.high:
            needed_limits = f"{min(stage.low, max(1, number))}..{max(stage.high, number)}"
            raise TopologyError(
                f"{stage.name} was planned for {stage.low} to {stage.high} instances, not {number}."
                + _how_to_allow(step, needed_limits, number)
            )
        for edge in (*self.incoming(stage.index), *self.outgoing(stage.index)):
            if edge.partitioning == "forward":
                neighbour = self.stages[edge.source if edge.target == stage.index else edge.target]
                raise TopologyError(
                    f"{stage.name} and {neighbour.name} were planned with the same number of instances, each sending its rows"
                    f" to its partner.{_how_to_allow(step, f'1..{stage.high}', number)}"
                )

    def stage_named(self, name: str) -> Stage:
        """Return the stage with this name, or the stage that holds the step with it. Raises `TopologyError`, with a suggestion."""
        names: list[str] = []
        near: list[str] = []
        for stage in self.stages:
            if name == stage.name or name in stage.name.split("+"):
                return stage
            names += [stage.name]
            near += [stage.name, *stage.name.split("+")]
        raise TopologyError(
            f"No stage {name!r} in {self.application}.{suggestion(name, near)} Stages: {', '.join(names)}"
        )


def _how_to_allow(step: str, limits: str, number: int) -> str:
    if not 1 <= number <= MAX_PARALLELISM:
        return f" 1 to {MAX_PARALLELISM} are possible (one for each key group)."
    return (
        f" Submit it with --parallelism {step}={limits}, or call topology.scale({step!r}, {limits.replace('..', ', ')}):"
        f" rows may then carry their positions, which costs {POSITIONS_COST}. With --upgrade the running one keeps its state."
    )


def suggestion(name: str, names: list[str]) -> str:
    """Return a hint at the name that was probably meant, or ""."""
    near = get_close_matches(name, names, n=1)
    return f" Did you mean {near[0]}?" if near else ""
