"""`Program`: a topology's functions joined with its plan; makes the parts of every instance."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from agiledart_dataflow.batch_codec import BatchCodec
from agiledart_dataflow.carrying import STATELESS
from agiledart_dataflow.chain import OnError
from agiledart_dataflow.connectors import Connector
from agiledart_dataflow.inference import CannotTellError, return_annotation
from agiledart_dataflow.loop_text import RowStep
from agiledart_dataflow.operators.base import Operator
from agiledart_dataflow.operators.keyed import KeyedStep
from agiledart_dataflow.operators.panes import PaneWindow, pane_state_type
from agiledart_dataflow.operators.sliding import SlidingWindow
from agiledart_dataflow.operators.top import Top
from agiledart_dataflow.partitioning import KeyFunction
from agiledart_dataflow.position import Position
from agiledart_dataflow.rows import Entry
from agiledart_dataflow.schema import generic
from agiledart_dataflow.segments import Segments
from agiledart_dataflow.stages import StagePlan
from agiledart_dataflow.topology import Step, Topology
from agiledart_dataflow.windows import Sliding
from agiledart_kernel.errors import TopologyError


@dataclass(frozen=True)
class Endpoint:
    """A source's or sink's step: its name, connector and row type; what a driver needs to open it."""

    name: str
    connector: Connector
    row_type: Any


class Program:
    """Makes operators, chains, codecs and endpoints by stage; holds no state of a run.

    Attributes:
        topology, specification, plan: what it was compiled from.
    """

    def __init__(self, topology: Topology, plan: StagePlan) -> None:
        self.topology = topology
        self.specification = topology.specification()
        self.plan = plan
        if plan.digest != self.specification.digest():
            raise TopologyError(
                f"{topology.name}: this code builds another graph than the one that was planned; a builder must not depend on the"
                " clock, files or the environment"
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
        return Endpoint(step.name, step.connector, step.row_type)

    def key_functions(self, stage: int) -> dict[int, tuple[str, KeyFunction]]:
        """Outgoing keyed edge → (name of the keyed step, row → key)."""
        functions = {}
        for edge in self.plan.outgoing(stage):
            keying = (head := self.steps(edge.target)[0]).keying
            if keying is not None:
                functions[edge.index] = (head.name, keying.function)
        return functions

    def operator(self, stage: int) -> Operator | None:
        """A new operator for an instance of a stage; None for a stage that has none."""
        head = self.steps(stage)[0]
        make = head.make
        if head.kind == "top":
            assert head.function is not None
            return Top(head.name, head.function, **make)
        if head.keying is None:
            return None
        key_of = head.keying.function
        if head.kind == "stateful":
            return KeyedStep(head.name, key_of, make["operator"])
        window = make["window"]
        if isinstance(window, Sliding):
            return SlidingWindow(head.name, key_of, window.size_ms, make["aggregator"])
        positions = self.plan.carries(stage) == "positions"
        return PaneWindow(head.name, key_of, window, make["aggregator"], positions=positions)

    def segments(self, stage: int, on_error: OnError | None = None) -> Segments | None:
        """New runs of the stage's stateless steps; None when it has none. `on_error`: told of rows that a policy let go."""
        steps = [self._row_step(step) for step in self.steps(stage) if step.kind in STATELESS]
        return Segments(steps, self.plan.carries(stage), on_error) if steps else None

    def state_type(self, stage: int) -> Any:
        """The type of `Operator.snapshot` of a stage, by which its bytes are decoded."""
        head = self.steps(stage)[0]
        row_type = self.input_type(stage)
        make = head.make
        if head.kind == "top":
            key, value, cause = get_args(row_type)
            values = generic(list, generic(tuple, key, value, int))
            shown = generic(list, generic(Entry, key, value))
            return generic(tuple, values, shown, cause | None, int, bool, Position)
        if head.keying is None:
            return None
        key = head.keying.key_type
        if head.kind == "stateful":
            entries = generic(list, generic(tuple, key, bool, make["state_type"] | None, int, int))
            return generic(tuple, entries, generic(list, generic(tuple, Position, key, Any)))
        state = _aggregate_state(make["aggregator"])
        if isinstance(make["window"], Sliding):
            windows = generic(list, generic(tuple, key, int, state))
            return generic(tuple, windows, generic(list, generic(tuple, Position, key, row_type)))
        return pane_state_type(key, state)

    def _row_step(self, step: Step) -> RowStep:
        make = step.make
        kind = _ROW_KINDS[step.kind]
        if step.kind == "flat_map" and not make["many"]:
            kind = "optional"
        return RowStep(
            name=step.name,
            kind=kind,
            function=step.function,
            policy=make.get("on_error", "fail"),
            inline=make.get("inline"),
            vector=make.get("vector"),
            enters=self.topology.steps[step.inputs[0]].row_type,
        )

    def input_type(self, stage: int) -> Any:
        """The type of the rows that enter a stage (a source's: that it puts out)."""
        incoming = self.plan.incoming(stage)
        return self.row_type(incoming[0].index) if incoming else self.steps(stage)[0].row_type


def compile_program(topology: Topology, plan: StagePlan) -> Program:
    """Join functions and plan. Raises `TopologyError` when the plan is of another graph."""
    return Program(topology, plan)


def _aggregate_state(aggregator: Any) -> Any:
    """The type of an aggregator's state where its annotation says one; plain data elsewhere."""
    if type(aggregator).__module__ == "agiledart_dataflow.aggregators":
        return Any
    try:
        return return_annotation(aggregator.create)
    except CannotTellError:
        return Any


_ROW_KINDS: dict[str, Literal["map", "filter", "optional", "many", "batch"]] = {
    "map": "map",
    "with_columns": "map",
    "select": "map",
    "filter": "filter",
    "where": "filter",
    "flat_map": "many",
    "map_batches": "batch",
}
