"""Operator of a stage's first step, made from that step; and the types of its state and results."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, get_args

from agiledart_dataflow.aggregation.aggregators import Aggregator, CompositeAggregator, Count, Extreme, Mean, Sum
from agiledart_dataflow.aggregation.count_windows import CountWindow
from agiledart_dataflow.aggregation.late_panes import LatePanes
from agiledart_dataflow.aggregation.named_panes import NamedPanes
from agiledart_dataflow.aggregation.named_running import NamedRunning
from agiledart_dataflow.aggregation.pane_values import kept_values
from agiledart_dataflow.aggregation.panes import PaneWindow, kept_state_type
from agiledart_dataflow.aggregation.running_aggregate import Reduction
from agiledart_dataflow.aggregation.running_values import RunningValues
from agiledart_dataflow.aggregation.sessions import SessionWindow
from agiledart_dataflow.aggregation.sliding import SlidingWindow, sliding_entry_type
from agiledart_dataflow.data.inference import UnknownTypeError, optional_stripped, return_annotation, traced_type
from agiledart_dataflow.data.keying import without_nan
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.windows import Counted, Panes, Session, Sliding, Window
from agiledart_dataflow.expressions.row_expression import RowExpression
from agiledart_dataflow.operators.base import OnOperatorError, Operator
from agiledart_dataflow.operators.broadcast import BroadcastStep
from agiledart_dataflow.operators.keyed import KeyedOperator
from agiledart_dataflow.operators.keyed_step import KeyedStep
from agiledart_dataflow.operators.model_scorer import ModelScorer
from agiledart_dataflow.operators.scoring_step import ScoringStep
from agiledart_dataflow.operators.top import Top, emitted_type, ranked_type
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.plan.step_parts import StateParts
from agiledart_dataflow.state.entries import EntryCodec
from agiledart_dataflow.state.open_windows import window_entry_type
from agiledart_dataflow.state.plain_codec import PlainCodec
from agiledart_dataflow.state.store import KeyedStore, MemoryStore
from agiledart_dataflow.user_code.callsite import CallSite

MakeStore = Callable[[str, EntryCodec], KeyedStore]
"""(step, codec) → a store for one instance of a step whose state is on disk."""


def make_operator(
    head: Step,
    row_type: Any,
    *,
    positions: bool = True,
    has_lateness: bool = False,
    make_store: MakeStore | None = None,
    on_operator_error: OnOperatorError | None = None,
) -> Operator | None:
    """Return a new operator for an instance of the stage that begins with this step; None for a step that needs none.

    Args:
        head: the stage's first step.
        row_type: type of the rows of its first input.
        positions: positions go with the rows that enter, not only times.
        has_lateness: positions tell how late a row was.
        make_store: for steps with `keep="disk"`; without it their state is in memory too.
        on_operator_error: called for rows at which user code raised, when the step's error policy drops them.
    """
    on_operator_error = on_operator_error if head.skips_failed_rows else None
    if head.top is not None:
        assert head.function is not None
        codec = PlainCodec(head.name, lambda: ranked_type(*get_args(row_type)[:2]))
        rest = PlainCodec(head.name, lambda: emitted_type(*get_args(row_type)))
        return Top(head.name, head.function, codec, rest, **asdict(head.top), on_operator_error=on_operator_error)
    if head.keying is None:
        return None
    if head.state is not None:
        return _keyed_operator(head, head.state, has_lateness, make_store, on_operator_error)
    assert head.window is not None  # a keyed step has a state, or a window
    window, aggregator, named = head.window.window, head.window.aggregator, head.window.named
    if has_lateness and isinstance(window, Panes):  # its time of arrival may give another window
        panes = LatePanes(window, aggregator, None if named is None else named.flat)
        state = StateParts(panes, generic(dict, int, head.window.aggregate_type))
        return _keyed_operator(head, state, has_lateness, None, on_operator_error)
    key_of = _key_functions(head)[0]
    codec = PlainCodec(head.name, lambda: window_state_type(head, row_type))
    if isinstance(window, Sliding):
        return SlidingWindow(head.name, key_of, window.size_ms, aggregator, codec, on_operator_error)
    if named is not None:
        enters = head.window.enters
        return NamedPanes(
            head.name, key_of, enters, window, named, codec, positions=positions, on_operator_error=on_operator_error
        )
    return PaneWindow(
        head.name, key_of, window, aggregator, codec, positions=positions, on_operator_error=on_operator_error
    )


def _keyed_operator(
    head: Step,
    parts: StateParts,
    has_lateness: bool,
    make_store: MakeStore | None,
    on_operator_error: OnOperatorError | None,
) -> Operator:
    """Return the runner of an operator whose state is in a store."""
    assert head.keying is not None  # the caller asked
    operator = parts.operator
    codec = EntryCodec(head.name, head.keying.key_type, parts.state_type, operator.to_plain, operator.from_plain)
    on_disk = make_store is not None and parts.keep == "disk"
    store = make_store(head.name, codec) if make_store is not None and on_disk else MemoryStore(codec)
    key_functions = _key_functions(head)
    if isinstance(operator, NamedRunning):
        return RunningValues(head.name, key_functions[0], operator, store, on_operator_error)
    options: dict[str, Any] = {
        "time_to_live_ms": parts.time_to_live_ms,
        "has_lateness": has_lateness,
        "on_operator_error": on_operator_error,
    }
    if head.traits.shares_second:
        shared = PlainCodec(head.name, lambda: parts.shared_type)
        runner = ScoringStep if isinstance(operator, ModelScorer) else BroadcastStep
        return runner(head.name, key_functions[0], operator, store, shared, **options)
    return KeyedStep(head.name, key_functions, operator, store, sieves=head.traits.counting == "sieves", **options)


def _key_functions(head: Step) -> tuple[Callable[[Any], Any], ...]:
    assert head.keying is not None  # the caller asked
    key_type = head.keying.key_type
    return tuple(without_nan(function, key_type) for function in head.key_functions)


def window_state_type(head: Step, row_type: Any) -> Any:
    """Return the type of a key group's entries, used to decode them, for a window that is not a keyed operator.

    Args:
        head: the window's step.
        row_type: of the rows that enter it.
    """
    assert head.keying is not None  # windows are of keyed streams
    assert head.window is not None
    key, aggregator = head.keying.key_type, head.window.aggregator
    state = aggregate_state_type(aggregator, row_type)
    if isinstance(head.window.window, Sliding):
        return sliding_entry_type(key, state, row_type)
    values_kept = kept_values(aggregator)
    if values_kept is not None:
        state = kept_state_type([_value_type(function, row_type) for function in values_kept.values])
    return window_entry_type(key, state)


def keyed_window(
    window: Window,
    aggregator: Aggregator[Any, Any, Any],
    row_type: Any,
    flat: Callable[[Any], Any] | None = None,
    *,
    on_disk: bool = False,
) -> tuple[KeyedOperator[Any, Any, Any, Any], Any] | None:
    """Return (operator, type of its plain state) of a window that is a keyed operator, else None.

    Sliding windows are none, nor are tumbling and hopping ones in memory.

    Args:
        window: selects the rows.
        aggregator: computes the value of the rows.
        row_type: type of the rows.
        flat: makes the row of a window with named results from its pane.
        on_disk: the state must be on disk, so the window must be a keyed operator.
    """
    state = aggregate_state_type(aggregator, row_type)
    if isinstance(window, Session):
        return SessionWindow(window.gap_ms, aggregator, flat), generic(tuple, int, int, state) | None
    if isinstance(window, Counted):
        windows = generic(list, generic(tuple, int, int, state))
        return CountWindow(window.size, window.every, aggregator, flat), generic(tuple, int, windows)
    if isinstance(window, Panes) and (window.lateness_ms or on_disk):
        return LatePanes(window, aggregator, flat), generic(dict, int, state)
    return None


def aggregate_state_type(aggregator: Any, row_type: Any) -> Any:
    """Return the type of an aggregator's plain state for rows of a type; `Any`, plain data, where it is unknown."""
    if isinstance(aggregator, CompositeAggregator):
        return generic(tuple, *[aggregate_state_type(part, row_type) for part in aggregator.parts])
    if isinstance(aggregator, Reduction):
        return generic(list, row_type)
    if isinstance(aggregator, Extreme):
        return generic(list, _value_type(aggregator.value_of, row_type))
    if type(aggregator).__module__.startswith("agiledart_dataflow."):
        return Any
    try:
        return return_annotation(aggregator.create)
    except UnknownTypeError:
        return Any


def aggregate_value_type(aggregator: Any, row_type: Any, where: CallSite) -> Any:
    """Return the type of an aggregate's value. Raises `TopologyError`."""
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
        if isinstance(aggregator, CompositeAggregator):
            return generic(tuple, *[aggregate_value_type(part, row_type, where) for part in aggregator.parts])
        return return_annotation(aggregator.result)
    except UnknownTypeError as error:
        name = type(aggregator).__name__
        raise where.error(
            f"the type of the values of {name} is unknown, {error}: annotate the function it uses"
        ) from None


def _value_type(function: Callable[[Any], Any], row_type: Any) -> Any:
    """Return the type of a function's result in an aggregate; `Any` where it is unknown."""
    if isinstance(function, RowExpression):
        return optional_stripped(function.type.annotation)
    try:
        return optional_stripped(traced_type(function, row_type))
    except UnknownTypeError:
        return Any
