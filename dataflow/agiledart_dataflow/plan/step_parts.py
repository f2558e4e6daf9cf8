"""Parts of a step's implementation that do not travel: a step has those of its kind, and None for all others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agiledart_dataflow.plan.overload import Overload


@dataclass(frozen=True, slots=True)
class SourceParts:
    """Treatment of the records of a source.

    Attributes:
        check: row → None, or a word for the reason why it is malformed.
        malformed: policy for records that cannot be read (`MALFORMED_POLICIES`); "": the connector's.
        max_out_of_order_ms: rows are sorted within this time.
        overload: policy while the mesh is slower than rows come.
        clock: arguments of `EventClock` beside the tolerance; only those that differ from the default.
        times_of_columns: function columns → event times of a batch; None where event times can be read from rows only.
    """

    check: Callable[[Any], str | None] | None = None
    malformed: str = ""
    max_out_of_order_ms: int = 0
    overload: Overload = field(default_factory=Overload)
    clock: Mapping[str, Any] = field(default_factory=dict)
    times_of_columns: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class RowParts:
    """Treatment of a row by a stateless step.

    Attributes:
        many: of a flat_map: it may make more than one row of one.
        inline: an expression that a generated loop contains as code.
        vector: the same for a batch of columns.
    """

    many: bool = False
    inline: Any = None
    vector: Any = None


@dataclass(slots=True)
class StateParts:
    """A keyed operator and its state.

    Attributes:
        operator: the `KeyedOperator`, or an object with its interface.
        state_type: of a key's state in plain form.
        keep: "memory" or "disk".
        key_functions: row → key by input; None in it: rows that go to all instances. (): the step's one key.
        time_to_live_ms: a key without a row for this time is forgotten; 0: never.
        shared_type: type of the state that a broadcast stream fills.
        other_rows: the type of the second input's rows, where it differs from the first's.
    """

    operator: Any
    state_type: Any
    keep: str = "memory"
    key_functions: tuple[Any, ...] = ()
    time_to_live_ms: int = 0
    shared_type: Any = None
    other_rows: Any = None


@dataclass(frozen=True, slots=True)
class WindowParts:
    """A window and the computation over it.

    Attributes:
        window: which rows belong together, one of `event_time.windows.Window`.
        aggregator: the computation over the rows of a window.
        aggregate_type: of the aggregator's state in plain form.
        named: named results (`NamedWindow`); None for one aggregate.
        enters: the type of the rows, where results are named.
    """

    window: Any
    aggregator: Any
    aggregate_type: Any
    named: Any = None
    enters: Any = None


@dataclass(frozen=True, slots=True)
class TopParts:
    """Settings of `top`: number of places, order, and output."""

    n: int
    newest_first: bool
    keys_only: bool
    on_change: bool
