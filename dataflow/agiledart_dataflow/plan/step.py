"""`Step`: one step of a graph with the user's functions, and the data that it needs beside each row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.keying import Keying
from agiledart_dataflow.data.schema import SchemaError, check_travels, read_time_index
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.specification import AT_SOURCE, Options, StepSpecification
from agiledart_dataflow.plan.step_kinds import StepKind, kind_named
from agiledart_dataflow.plan.step_parts import RowParts, SourceParts, StateParts, TopParts, WindowParts
from agiledart_dataflow.user_code.callsite import CallSite
from agiledart_dataflow.user_code.error_policy import ErrorPolicy


@dataclass(frozen=True)
class Step:
    """One step of the graph with the user's functions; `StepSpecification` is its part without them.

    Attributes:
        on_error: how the application continues when its code raises.
        source, rows, state, window, top: the parts of its implementation, by its kind.
    """

    index: int
    name: str
    kind: str
    inputs: tuple[int, ...]
    row_type: Any
    where: CallSite
    keying: Keying | None = None
    function: Callable[..., Any] | None = None
    options: Options = ()
    connector: Connector | None = None
    at: str = ""
    on_error: ErrorPolicy = "fail"
    source: SourceParts | None = None
    rows: RowParts | None = None
    state: StateParts | None = None
    window: WindowParts | None = None
    top: TopParts | None = None

    @property
    def traits(self) -> StepKind:
        """Row of its kind in the table of step kinds."""
        return kind_named(self.kind)

    @property
    def key_functions(self) -> tuple[Callable[[Any], Any], ...]:
        """Row → key, by input; () for a step that is not keyed."""
        if self.keying is None:
            return ()
        given = () if self.state is None else self.state.key_functions
        return given or (self.keying.function,)

    @property
    def is_side(self) -> bool:
        """True for a side output of another step."""
        return any(name == "tag" for name, _ in self.options)

    @property
    def is_at_source(self) -> bool:
        """True for a step that runs in the instance of its source, before the rows get their event times."""
        return any(name == AT_SOURCE for name, _ in self.options)

    @property
    def skips_failed_rows(self) -> bool:
        """True when it continues without a row for which its code raised."""
        return self.on_error != "fail"

    def specification(self) -> StepSpecification:
        """Return the part of the step that travels."""
        try:
            return StepSpecification(
                index=self.index,
                name=self.name,
                kind=self.kind,
                inputs=self.inputs,
                keyed=self.keying is not None,
                row_type=check_travels(self.row_type),
                key_type="" if self.keying is None else check_travels(self.keying.key_type),
                options=self.options,
                connector=None if self.connector is None else self.connector.described(),
                at=self.at,
                needs=need_of(self),
                reacts_to_time=reacts_to_time(self),
            )
        except SchemaError as error:
            raise self.where.error(f"{self.name}: {error}") from None


def need_of(step: Step) -> Carries:
    """Return the data that a step needs beside each row: the need of its kind, reduced where its parts allow."""
    if step.traits.stage == "sink" and read_time_index(step.row_type) is None:
        return "rows"  # otherwise latencies are sampled by the source and number of the record behind a result
    if step.traits.path_by_window and step.window is not None and step.window.window.closes_by_time:
        return "times" if step.window.aggregator.commutative else "positions"
    return step.traits.needs


def reacts_to_time(step: Step) -> bool:
    """Return whether a step acts when time passes without rows. Its kind decides; users' code without timers does not."""
    if step.traits.user_timers and step.state is not None:
        operator = type(step.state.operator)
        return any("on_timer" in vars(cls) for cls in operator.__mro__ if cls.__name__ != "KeyedOperator")
    return step.traits.reacts_to_time
