"""The parts of a step's implementation that do not travel: a step has those of its kind, and None for all others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agiledart_dataflow.plan.overload import Overload


@dataclass(frozen=True, slots=True)
class SourceParts:
    """How a source treats what it reads.

    Attributes:
        check: row → None, or a word that says why it is malformed.
        malformed: what becomes of records that cannot be read (`MALFORMED_POLICIES`); "": as the connector says.
        max_out_of_order_ms: rows are sorted within this time.
        overload: what to do while the mesh is slower than rows come.
        clock: what `EventClock` needs beyond the tolerance; only what differs from the usual.
        times_of_columns: the event times of a batch of columns; None where only rows tell them.
    """

    check: Callable[[Any], str | None] | None = None
    malformed: str = ""
    max_out_of_order_ms: int = 0
    overload: Overload = field(default_factory=Overload)
    clock: Mapping[str, Any] = field(default_factory=dict)
    times_of_columns: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class RowParts:
    """How a stateless step treats a row.

    Attributes:
        many: of a flat_map: it may make more than one row of one.
        inline: an expression that a generated loop holds as code.
        vector: the same for a batch of columns.
    """

    many: bool = False
    inline: Any = None
    vector: Any = None


@dataclass(slots=True)
class StateParts:
    """A keyed operator and its state.

    Attributes:
        operator: the `KeyedOperator`, or what takes its place.
        state_type: of a key's state in plain form.
        keep: "memory" or "disk".
        key_functions: row → key by input; None in it: rows that go to all instances. (): the step's one key.
        time_to_live_ms: a key is forgotten that so long had no row; 0: never.
        shared_type: of what a broadcast stream has told.
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
    """A window and what is made of it.

    Attributes:
        window: the rows, one of `event_time.windows.Window`.
        aggregator: what is made of them.
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
    """What `top` keeps: so many places, and how it orders and puts out."""

    n: int
    newest_first: bool
    keys_only: bool
    on_change: bool
