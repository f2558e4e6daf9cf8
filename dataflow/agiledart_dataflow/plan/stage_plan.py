"""Stages and edges as data: what a topology is cut into, and which channels there are. The same on every node."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Literal

import msgspec

from agiledart_dataflow.data.carries import Carries, most
from agiledart_dataflow.data.partitioning import Owners
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.plan.paths import AUTO, Paths
from agiledart_dataflow.state.owner_table import groups_of, next_owners, owners_by_key, owners_round_robin
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.limits import MAX_PARALLELISM

Partitioning = Literal["forward", "key", "round_robin", "single", "broadcast"]
"""How rows choose an instance: the same index, by key, in turn, the only one, all of them."""

StageKind = Literal["source", "operator", "sink"]

ERRORS = "errors"
"""Tag of the side output that a step's dead letters take."""

POSITIONS_COST = "4 to 8 % of what a job takes that does little with each row (docs/how-to/scaling.md)"
"""What limits cost a job with one instance of everything, as `python -m benchmarks.limits_costs` measured it (decision 0020)."""


def member(generation: int, index: int) -> int:
    """The number by which channels name an instance: its index in the first term, another one in each later term."""
    return (generation - 1) * MAX_PARALLELISM + index


def index_of(number: int) -> int:
    """The index, within its term, of the instance that channels name so."""
    return number % MAX_PARALLELISM


def generation_of(number: int) -> int:
    """The term of the instance that channels name so."""
    return number // MAX_PARALLELISM + 1


class Stage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Fused steps; the unit that is placed.

    Attributes:
        index: its place in `StagePlan.stages`; stages that feed it come before.
        name: its steps, joined with "+".
        kind: source, operator or sink.
        steps: indices of its steps, in the order in which rows pass them.
        parallelism: how many instances it has.
        keyed: True when its instances own key groups.
        has_state: True when an instance of it remembers rows.
        at: the node to which it is pinned, or "".
        term: how many times its instances were given numbers or places, from 1; grows at a barrier while rows flow.
        low, high: limits of `parallelism`, within which its edges need not be planned anew.
        scales: it was given limits, and may be scaled without a command.
        owners: of this term; empty where it can have one instance only.
        if_lost: what becomes of the run when its node (of a source or sink) or its state is lost, see `losses`; "": it waits.
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

    def first_owners(self) -> Owners:
        """The table that it begins with."""
        if self.high == 1:
            return b""
        return owners_by_key(self.parallelism) if self.keyed else owners_round_robin(self.parallelism)

    def groups(self, index: int) -> tuple[int, ...]:
        """The key groups of one instance; () where there is no table."""
        return groups_of(self.owners, index)

    def with_instances(self, number: int) -> "Stage":
        """The stage with another number of instances, the first ones of today among them, and few groups moved."""
        if number == self.parallelism:
            return self
        kept = range(min(number, self.parallelism))
        return msgspec.structs.replace(self, parallelism=number, owners=next_owners(self.owners, kept, number))


class Edge(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Rows of one stage on their way to another.

    Attributes:
        index: its place in `StagePlan.edges`.
        source, target: indices of the stages.
        partitioning: how rows choose an instance of the target.
        row_type: structural text of the rows' type.
        depth: how many path elements the positions on it have.
        padding: what the target appends to each position (a union does).
        carries: what travels beside its rows.
        lazy_marks: a mark without rows may wait for the next rows.
        paths: which ways its rows may take between two nodes.
        side: "" for the rows that the last step of the stage puts out; "step/tag" for a side output of one of its steps.
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
    """

    application: str
    digest: bytes
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]

    def outgoing(self, stage: int) -> tuple[Edge, ...]:
        """The edges that leave a stage."""
        return tuple(edge for edge in self.edges if edge.source == stage)

    def incoming(self, stage: int) -> tuple[Edge, ...]:
        """The edges that enter a stage."""
        return tuple(edge for edge in self.edges if edge.target == stage)

    def carries(self, stage: int) -> Carries:
        """What goes with the rows inside a stage: what its inputs carry, at a source what its outputs need."""
        incoming = self.incoming(stage)
        return incoming[0].carries if incoming else most(*(edge.carries for edge in self.outgoing(stage)))

    def members(self, stage: int) -> range:
        """The instances of a stage in its present term, as channels name them."""
        first = member(self.stages[stage].generation, 0)
        return range(first, first + self.stages[stage].parallelism)

    def inputs(self, stage: int, index: int) -> tuple[tuple[int, int], ...]:
        """(edge, upstream instance) of every channel that enters an instance; `index` is that within its term."""
        return tuple(
            (edge.index, source)
            for edge in self.incoming(stage)
            for source in self.members(edge.source)
            if edge.partitioning != "forward" or index_of(source) == index
        )

    def targets(self, edge: int, source: int) -> range:
        """The instances of the target stage to which an instance sends over an edge."""
        members = self.members(self.edges[edge].target)
        if self.edges[edge].partitioning == "forward":
            at = index_of(source)
            return members[at : at + 1]
        return members

    def followers(self, edge: int, source: int) -> tuple[int, ...]:
        """Whose channels go on where that of an instance of the term before has ended: those of all instances, since all before
        stood at one frontier; of its partner only, where each hears of its own partner alone.
        """
        stage = self.edges[edge].source
        if any(one.partitioning == "forward" for one in self.incoming(stage)):
            return (self.members(stage)[index_of(source)],)
        return tuple(self.members(stage))

    def channels(self) -> Iterator[tuple[int, int, int]]:
        """(edge, source instance, target instance) of every channel."""
        for edge in self.edges:
            for source in self.members(edge.source):
                for target in self.targets(edge.index, source):
                    yield edge.index, source, target

    def next_generations(self, numbers: Mapping[str, int]) -> "StagePlan":
        """The plan in which the stages that are named, by themselves or by a step, have a new term: with other numbers of
        instances and few groups moved, or with the same number, table and other places.

        Raises:
            TopologyError: as `with_instances`, and for what cannot change its place in mid-stream.
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
        """The plan with other numbers of instances, by name of a stage or step; edges stay as they are.

        Raises:
            TopologyError: more or fewer than its edges were planned for, or than it may have at all.
        """
        stages = list(self.stages)
        for name, number in numbers.items():
            stage = self.stage_named(name)
            self._refuse(stage, number)
            stages[stage.index] = stages[stage.index].with_instances(number)
        return msgspec.structs.replace(self, stages=tuple(stages))

    def _refuse(self, stage: Stage, number: int) -> None:
        if number == stage.parallelism:
            return
        step = stage.name.split("+")[0]
        if stage.high == 1 and not stage.scales and stage.kind != "operator":
            raise TopologyError(f"{step} runs once: it is a {stage.kind}")
        if not stage.low <= number <= stage.high:
            wanted = f"{min(stage.low, max(1, number))}..{max(stage.high, number)}"
            raise TopologyError(
                f"{stage.name} may have {stage.low} to {stage.high} instances, as it was planned, not {number}."
                + _how_to_allow(step, wanted, number)
            )
        for edge in (*self.incoming(stage.index), *self.outgoing(stage.index)):
            if edge.partitioning == "forward":
                other = self.stages[edge.source if edge.target == stage.index else edge.target]
                raise TopologyError(
                    f"{stage.name} and {other.name} were planned with one number of instances, each handing its rows to its"
                    f" partner.{_how_to_allow(step, f'1..{stage.high}', number)}"
                )

    def stage_named(self, name: str) -> Stage:
        """The stage with this name, or that holds a step with this name. Raises `TopologyError`, with a suggestion."""
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
        f" Submit it with --parallelism {step}={limits}, or say topology.scale({step!r}, {limits.replace('..', ', ')}):"
        f" rows may then carry their positions, which costs {POSITIONS_COST}."
    )


def suggestion(name: str, names: list[str]) -> str:
    """A hint at the name that was probably meant, or nothing."""
    near = get_close_matches(name, names, n=1)
    return f" Did you mean {near[0]}?" if near else ""
