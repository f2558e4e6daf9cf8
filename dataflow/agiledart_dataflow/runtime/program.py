"""`Program`: a topology's functions joined with its plan; makes the parts of every instance."""

from dataclasses import dataclass
from typing import Any

from agiledart_dataflow.aggregation.make_operator import MakeStore, make_operator
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.partitioning import KeyFunction
from agiledart_dataflow.graph.column_planning import fields_wanted, wants_columns
from agiledart_dataflow.graph.topology import Topology
from agiledart_dataflow.operators.base import OnOperatorError, Operator
from agiledart_dataflow.operators.chain import OnError
from agiledart_dataflow.operators.loop_text import RowKind, RowStep
from agiledart_dataflow.operators.segments import Segments
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.plan.step_parts import RowParts
from agiledart_dataflow.state.owner_table import are_owners
from agiledart_kernel.errors import TopologyError


class GraphMismatch(TopologyError):
    """The code builds another graph here than where it was submitted."""


@dataclass(frozen=True)
class Endpoint:
    """A source's or sink's step: its name, connector and row type; what a driver needs to open it.

    Attributes:
        columns: a source: columns are better than rows, where it can make them.
        wanted: then: fields that will be looked at; None: all of them.
    """

    name: str
    connector: Connector
    row_type: Any
    columns: bool = False
    wanted: frozenset[str] | None = None


class Program:
    """Makes operators, chains, codecs and endpoints by stage; holds no state of a run.

    Attributes:
        topology, specification, plan: what it was compiled from.
        lateness_ms: how late rows may be to be let in at its sources.
    """

    def __init__(self, topology: Topology, plan: StagePlan) -> None:
        self.topology = topology
        self.specification = topology.specification()
        self.plan = plan
        self.lateness_ms = self.specification.lateness_ms
        if plan.digest != self.specification.digest():
            raise GraphMismatch(
                f"{topology.name}: this code builds another graph than the one that was planned; a builder must not depend on the"
                " clock, files or the environment"
            )
        for stage in plan.stages:
            if stage.high > 1 and not are_owners(stage.owners, stage.parallelism):
                raise TopologyError(
                    f"{topology.name}: the plan does not say which instance of {stage.name} owns which keys"
                )

    def steps(self, stage: int) -> tuple[Step, ...]:
        """The steps of a stage."""
        return tuple(self.topology.steps[index] for index in self.plan.stages[stage].steps)

    def row_type(self, edge: int) -> Any:
        """The type of the rows on an edge."""
        found = self.plan.edges[edge]
        if found.side:  # a side output has rows of its own
            return self.steps(found.target)[0].row_type
        return self.topology.steps[self.plan.stages[found.source].steps[-1]].row_type

    def codec(self, edge: int) -> BatchCodec:
        """How batches of an edge travel."""
        return BatchCodec(self.row_type(edge), self.plan.edges[edge].carries)

    def endpoint(self, stage: int) -> Endpoint:
        """The connector of a source's or sink's stage."""
        step = self.steps(stage)[0]
        assert step.connector is not None  # sources and sinks always have one
        if step.traits.stage != "source" or self.lateness_ms or not wants_columns(self.topology, step):
            return Endpoint(step.name, step.connector, step.row_type)
        return Endpoint(step.name, step.connector, step.row_type, True, fields_wanted(self.topology, step))

    def key_functions(self, stage: int) -> dict[int, tuple[str, KeyFunction, bool]]:
        """Outgoing keyed edge → (name of the keyed step, row → key, whether its error policy lets rows go)."""
        functions = {}
        for edge in self.plan.outgoing(stage):
            head = self.steps(edge.target)[0]
            if edge.partitioning == "key":
                branch = self.plan.incoming(edge.target).index(edge)
                functions[edge.index] = (head.name, head.key_functions[branch], head.skips_failed_rows)
        return functions

    def operator(
        self, stage: int, on_operator_error: OnOperatorError | None = None, make_store: MakeStore | None = None
    ) -> Operator | None:
        """A new operator for an instance of a stage; None for a stage that has none.

        Args:
            stage: its stage.
            mishap: told of rows at which user code raised, when the step's error policy lets them go.
            make_store: where steps with `keep="disk"` keep their state; without it in memory.
        """
        return make_operator(
            self.steps(stage)[0],
            self.input_type(stage),
            positions=self.plan.carries(stage) == "positions",
            has_lateness=self.lateness_ms > 0,
            make_store=make_store,
            on_operator_error=on_operator_error,
        )

    def segments(self, stage: int, on_error: OnError | None = None) -> Segments | None:
        """New runs of the stage's stateless steps; None when it has none. `on_error`: told of rows that a policy let go."""
        steps = [self._row_step(step) for step in self.steps(stage) if step.traits.loop is not None]
        return Segments(steps, self.plan.carries(stage), on_error) if steps else None

    def _row_step(self, step: Step) -> RowStep:
        parts, loop = step.rows or RowParts(), step.traits.loop
        assert loop is not None  # the caller asked
        kind: RowKind = "optional" if loop == "many" and not parts.many else loop
        return RowStep(
            name=step.name,
            kind=kind,
            function=step.function,
            policy=step.on_error,
            inline=parts.inline,
            vector=parts.vector,
            enters=self.topology.steps[step.inputs[0]].row_type,
        )

    def joins(self, stage: int) -> bool:
        """True when rows of several types may enter a stage."""
        return self.steps(stage)[0].traits.joins

    def input_type(self, stage: int) -> Any:
        """The type of the rows that enter a stage (a source's: that it puts out)."""
        incoming = self.plan.incoming(stage)
        return self.row_type(incoming[0].index) if incoming else self.steps(stage)[0].row_type


def compile_program(topology: Topology, plan: StagePlan) -> Program:
    """Join functions and plan. Raises `TopologyError` when the plan is of another graph."""
    return Program(topology, plan)
