"""Windows of keyed rows: what can be made of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from agiledart_dataflow.aggregation.aggregators import Aggregator, Count, Extreme, Mean, Sum, Together
from agiledart_dataflow.aggregation.keyed_windows import keyed_window
from agiledart_dataflow.aggregation.named_aggregates import named_window
from agiledart_dataflow.aggregation.operator_making import aggregate_state_type
from agiledart_dataflow.aggregation.running import Reduction
from agiledart_dataflow.data.inference import CannotTellError, optional_stripped, return_annotation, traced_type
from agiledart_dataflow.data.rows import Change, Pane
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.windows import Counted, Panes, Session, Sliding
from agiledart_dataflow.expressions.aggregates import Aggregate
from agiledart_dataflow.graph.handles import needs_name
from agiledart_dataflow.graph.keyed_handle import Keep, check_keep
from agiledart_dataflow.graph.missing_verbs import missing_verb
from agiledart_dataflow.plan.specification import LATENESS
from agiledart_dataflow.user_code.callsite import CallSite, call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, error_policy

if TYPE_CHECKING:
    from agiledart_dataflow.graph.keyed_stream import KeyedStream
    from agiledart_dataflow.graph.streams import Stream

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


def add_window(
    keyed: "KeyedStream[Any, Any]",
    window: Sliding | Panes | Session | Counted,
    name: str,
    example: str,
    aggregator: Aggregator[Any, Any, Any],
    row_type_of: Callable[[Any, Any, Any], Any],
    on_error: ErrorPolicy,
    keep: Keep = "memory",
) -> int:
    """Add a windowed step; `row_type_of` makes its row type from the types of key, value and row. Its index."""
    where = call_site()
    needs_name(name, "count" if isinstance(aggregator, Count) else "aggregate", example, where)
    policy = error_policy(on_error, where)
    check_keep(name, keep, where)
    key_type, row_type = keyed.types
    result_type = value_type(aggregator, row_type, where)
    make: dict[str, Any] = {
        "window": window,
        "aggregator": aggregator,
        "aggregate_type": aggregate_state_type(aggregator, row_type),
        **policy["make"],
    }
    operator = keyed_window(window, aggregator, row_type, on_disk=keep == "disk")
    if operator is not None:
        make |= {"operator": operator[0], "state_type": operator[1], "keep": keep}
    return keyed.add(
        name,
        "window" if operator is None else "keyed-window",
        row_type_of(key_type, result_type, row_type),
        where,
        options=(
            ("window", str(window)),
            ("aggregate", type(aggregator).__name__),
            *_lateness(window),
            *policy["options"],
            *_on_disk(keep),
        ),
        make=make,
    )


class SlidingStream(Generic[K, R]):
    """Rows of each key of the last while."""

    def __init__(self, keyed: "KeyedStream[K, R]", window: Sliding) -> None:
        self._keyed = keyed
        self._window = window

    if not TYPE_CHECKING:  # as above

        def __getattr__(self, verb: str) -> Any:
            return missing_verb(self, "window", verb)

    def count(self, name: str, *, on_error: ErrorPolicy = "fail") -> "Stream[Change[K, int, R]]":
        """How many rows the window of each key holds, whenever that changes."""
        return self.aggregate(name, Count(), on_error=on_error)

    def aggregate(
        self, name: str, aggregator: Aggregator[R, Any, V], *, on_error: ErrorPolicy = "fail"
    ) -> "Stream[Change[K, V, R]]":
        """What an aggregator makes of each key's window, whenever a row enters or leaves.

        `on_error` says what becomes of a row for which the aggregator or the key function raises: the application fails with it
        (`fail`), goes on as if it were not there and counts it (`skip`), or counts it and puts it aside (`dead_letter`). A result
        that raises when a row leaves is not put out.
        """
        index = add_window(
            self._keyed,
            self._window,
            name,
            "route-frequency",
            aggregator,
            lambda key, value, row: generic(Change, key, value, row),
            on_error,
        )
        return self._keyed.stream(index)

    def reduce(
        self, name: str, function: Callable[[R, R], R], *, on_error: ErrorPolicy = "fail"
    ) -> "Stream[Change[K, R, R]]":
        """The rows of each key's window joined two by two, `function(so far, next)`, whenever a row enters or leaves."""
        return self.aggregate(name, Reduction(function), on_error=on_error)


class PaneStream(Generic[K, R]):
    """Rows of each key in windows that close."""

    def __init__(self, keyed: "KeyedStream[K, R]", window: Panes | Session | Counted) -> None:
        self._keyed = keyed
        self._window = window

    if not TYPE_CHECKING:  # as above

        def __getattr__(self, verb: str) -> Any:
            return missing_verb(self, "window", verb)

    def count(self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory") -> "Stream[Pane[K, int]]":
        """How many rows of each key a window held, when it closes."""
        return self.aggregate(name, Count(), on_error=on_error, keep=keep)

    @overload
    def aggregate(
        self, name: str, aggregator: Aggregator[R, Any, V], *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> "Stream[Pane[K, V]]": ...
    @overload
    def aggregate(self, name: str, **results: Aggregate) -> "Stream[Any]": ...
    @overload
    def aggregate(
        self, name: str, *, on_error: ErrorPolicy = "fail", keep: Keep = "memory", **results: Aggregate
    ) -> "Stream[Any]": ...
    def aggregate(
        self, name: str, aggregator: Any = None, *, on_error: Any = "fail", keep: Any = "memory", **results: Any
    ) -> "Stream[Any]":
        """What is made of each key's rows of a window, when it closes.

        An aggregator gives rows of type `Pane`. Named results, `trips=count(), fares=col("fare").sum()`, give flat rows: the
        key's fields, `start_ms`, `end_ms` and the results.

        `on_error`, here and in `count` and `reduce`, says what becomes of a row for which the aggregator, a value or the key raises
        (also of a value that cannot be summed or compared): the application fails with it (`fail`), goes on as if it were not
        there and counts it (`skip`), or counts it and puts it aside (`dead_letter`). A pane whose result raises is not put out.
        `keep` says where open windows are: on `disk` there may be more of them than memory holds.
        """
        if results:
            return self._keyed.stream(_add_named(self._keyed, self._window, name, aggregator, results, on_error, keep))
        index = add_window(
            self._keyed,
            self._window,
            name,
            "per-minute",
            aggregator,
            lambda key, value, row: generic(Pane, key, value),
            on_error,
            keep,
        )
        return self._keyed.stream(index)

    def reduce(
        self, name: str, function: Callable[[R, R], R], *, on_error: ErrorPolicy = "fail", keep: Keep = "memory"
    ) -> "Stream[Pane[K, R]]":
        """The rows of each key and window joined two by two, `function(so far, next)`, when it closes."""
        return self.aggregate(name, Reduction(function), on_error=on_error, keep=keep)


def _add_named(
    keyed: "KeyedStream[Any, Any]",
    window: Any,
    name: str,
    aggregator: Any,
    results: dict[str, Any],
    on_error: ErrorPolicy,
    keep: Keep,
) -> int:
    """Add a window with named results; its index."""
    where = call_site()
    needs_name(name, "aggregate", "per-minute", where)
    if aggregator is not None:
        raise where.error("aggregate() takes one aggregator, or named results, not both")
    policy = error_policy(on_error, where)
    check_keep(name, keep, where)
    key_type, row_type = keyed.types
    named = named_window(name, keyed.key_of, key_type, row_type, results, where)
    make = {
        "window": window,
        "aggregator": named.aggregator,
        "aggregate_type": aggregate_state_type(named.aggregator, row_type),
        "named": named,
        "enters": row_type,
        **policy["make"],
    }
    operator = keyed_window(window, named.aggregator, row_type, named.flat, on_disk=keep == "disk")
    if operator is not None:
        make |= {"operator": operator[0], "state_type": operator[1], "keep": keep}
    options = (
        ("window", str(window)),
        ("results", repr(sorted(results.items()))),
        *_lateness(window),
        *policy["options"],
        *_on_disk(keep),
    )
    kind = "window" if operator is None else "keyed-window"
    return keyed.add(name, kind, named.row_type, where, options=options, make=make)


def _on_disk(keep: Keep) -> tuple[tuple[str, str], ...]:
    return (("keep", keep),) if keep == "disk" else ()


def _lateness(window: Any) -> tuple[tuple[str, str], ...]:
    late_by = window.lateness_ms if isinstance(window, Panes) else 0
    return ((LATENESS, str(late_by)),) if late_by else ()


def value_type(aggregator: Any, row_type: Any, where: CallSite) -> Any:
    """The type of an aggregate's value."""
    if not isinstance(aggregator, Aggregator):
        raise where.error(f"aggregate() takes an aggregator such as mean_of(lambda row: row.field), not {aggregator!r}")
    try:
        if isinstance(aggregator, Count):
            return int
        if isinstance(aggregator, Mean):
            return float
        if isinstance(aggregator, Reduction):
            return row_type
        if isinstance(aggregator, Sum | Extreme):
            return optional_stripped(traced_type(aggregator.value_of, row_type))
        if isinstance(aggregator, Together):
            return generic(tuple, *[value_type(part, row_type, where) for part in aggregator.parts])
        return return_annotation(aggregator.result)
    except CannotTellError as error:
        name = type(aggregator).__name__
        raise where.error(
            f"the type of the values of {name} cannot be told, {error}: annotate the function it uses"
        ) from None
