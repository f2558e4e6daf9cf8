"""`Step`: one step of a graph with the user's functions, and what it needs to know of each row."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.keying import Keying
from agiledart_dataflow.data.schema import SchemaError, check_travels, read_time_index
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.specification import Options, StepSpecification
from agiledart_dataflow.plan.step_kinds import StepKind, kind_named
from agiledart_dataflow.user_code.callsite import CallSite


@dataclass(frozen=True)
class Step:
    """One step of the graph with the user's functions; `StepSpecification` is its part without them.

    Attributes:
        make: parts of the implementation, by the words of `program.py`.
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
    make: dict[str, Any] = field(default_factory=dict)

    @property
    def traits(self) -> StepKind:
        """What is known of its kind."""
        return kind_named(self.kind)

    @property
    def key_functions(self) -> tuple[Callable[[Any], Any], ...]:
        """Row → key, by input; () for a step that is not keyed."""
        if self.keying is None:
            return ()
        given: tuple[Callable[[Any], Any], ...] = self.make.get("key_functions", (self.keying.function,))
        return given

    def specification(self) -> StepSpecification:
        """What of the step travels."""
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
                minds_time=minds_time(self),
            )
        except SchemaError as error:
            raise self.where.error(f"{self.name}: {error}") from None


def need_of(step: Step) -> Carries:
    """What a step needs to know of each row that enters it: what its kind needs, but for what is known of its parts."""
    if step.traits.stage == "sink" and read_time_index(step.row_type) is None:
        return "rows"  # else latencies are sampled by the source and number of the record behind a result
    if step.traits.path_by_window and getattr(step.make.get("window"), "closes_by_time", False):
        return "times" if getattr(step.make.get("aggregator"), "commutative", False) else "positions"
    return step.traits.needs


def minds_time(step: Step) -> bool:
    """Does a step do something when time passes without rows? Its kind says so; code of users without timers does not."""
    operator = step.make.get("operator")
    if step.traits.users_timers and operator is not None:
        return any("on_timer" in vars(cls) for cls in type(operator).__mro__ if cls.__name__ != "KeyedOperator")
    return step.traits.minds_time
