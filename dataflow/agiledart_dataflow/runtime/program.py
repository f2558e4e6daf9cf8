"""`Program`: a topology's functions joined with its plan; it makes the parts of every instance."""

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
    """Error: the code builds another graph here than at submission."""


@dataclass(frozen=True)
class Endpoint:
    """Step of a source or sink: its name, connector and row type; a driver needs them to open it.

    Attributes:
        columns: for a source: columns are better than rows, where it can make them.
        wanted: then the fields that later steps read; None: all of them.
    """

    name: str
    connector: Connector
    row_type: Any
    columns: bool = False
    wanted: frozenset[str] | None = None


class Program:
    """Factory of operators, chains, codecs and endpoints by stage; it holds no state of a run.

    Attributes:
        topology, specification, plan: inputs of the compilation.
        lateness_ms: lateness up to which rows are accepted at its sources.
    """

    def __init__(self, topology: Topology, plan: StagePlan) -> None:
        self.topology = topology
        self.specification = topology.specification()
        self.plan = plan
        self.lateness_ms = self.specification.lateness_ms
        if plan.digest != self.specification.digest():
            raise GraphMismatch(
                f"{topology.name}: this code builds another graph than the planned one; a builder must not depend on the"
                " clock, files or the environment"
            )
        for stage in plan.stages:
            if stage.high > 1 and not are_owners(stage.owners, stage.parallelism):
                raise TopologyError(f"{topology.name}: the plan has no table of the key owners of {stage.name}")

    def steps(self, stage: int) -> tuple[Step, ...]:
        """Return the steps of a stage."""
        return tuple(self.topology.steps[index] for index in self.plan.stages[stage].steps)

    def row_type(self, edge: int) -> Any:
        """Return the type of the rows on an edge."""
        planned_edge = self.plan.edges[edge]
        if planned_edge.side:  # a side output has rows of its own
            return self.steps(planned_edge.target)[0].row_type
        return self.output_type(planned_edge.source)

    def output_type(self, stage: int) -> Any:
        """Return the type of the rows that leave a stage."""
        return self.steps(stage)[-1].row_type

    def codec(self, edge: int) -> BatchCodec:
        """Return the codec for batches of an edge."""
        return BatchCodec(self.row_type(edge), self.plan.edges[edge].carries)

    def endpoint(self, stage: int) -> Endpoint:
        """Return the endpoint of a source's or sink's stage."""
        step = self.steps(stage)[0]
        assert step.connector is not None  # sources and sinks always have one
        if step.traits.stage != "source" or self.lateness_ms or not wants_columns(self.topology, step):
            return Endpoint(step.name, step.connector, step.row_type)
        return Endpoint(step.name, step.connector, step.row_type, True, fields_wanted(self.topology, step))

    def key_functions(self, stage: int) -> dict[int, tuple[str, KeyFunction, bool]]:
        """Return: outgoing keyed edge → (name of the keyed step, row → key, whether its error policy drops rows)."""
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
        """Return a new operator for an instance of a stage; None for a stage without one.

        Args:
            stage: its stage.
            on_operator_error: called for rows at which user code raised, when the step's error policy drops them.
            make_store: makes the stores of steps with `keep="disk"`; without it state is in memory.
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
        """Return new runs of the stage's stateless steps; None when it has none. `on_error`: called for rows that a policy
        dropped.
        """
        steps = [self._row_step(step) for step in self.steps(stage) if step.traits.loop is not None]
        is_source = self.plan.stages[stage].kind == "source"  # its rows carry nothing before they have times
        return Segments(steps, "rows" if is_source else self.plan.carries(stage), on_error) if steps else None

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
        """Report whether rows of several types may enter a stage."""
        return self.steps(stage)[0].traits.joins

    def input_type(self, stage: int) -> Any:
        """Return the type of the rows that enter a stage (for a source: that it puts out)."""
        incoming = self.plan.incoming(stage)
        return self.row_type(incoming[0].index) if incoming else self.steps(stage)[0].row_type


def compile_program(topology: Topology, plan: StagePlan) -> Program:
    """Join functions and plan. Raises `TopologyError` when the plan is of another graph."""
    return Program(topology, plan)
