"""Verbs that give rows a key, and verbs that keep a state for each key: stateful, reduce, running, distinct, pattern."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack

from agiledart_dataflow.aggregation.make_operator import aggregate_state_type, aggregate_value_type
from agiledart_dataflow.aggregation.named_running import NamedRunning, named_running
from agiledart_dataflow.aggregation.running_aggregate import Reduction, RunningAggregate
from agiledart_dataflow.data.inference import UnknownTypeError, traced_type
from agiledart_dataflow.data.keying import Keying
from agiledart_dataflow.data.rows import Change, Match
from agiledart_dataflow.data.schema import SchemaError, check_key, check_travels, generic
from agiledart_dataflow.expressions.expression import Expression
from agiledart_dataflow.expressions.row_expression import KeyExpression, RowExpression
from agiledart_dataflow.graph.graph import KeyedRows, Rows, needs_name, span_ms
from agiledart_dataflow.operators.distinct import DistinctOperator
from agiledart_dataflow.operators.keyed import BroadcastOperator, KeyedOperator
from agiledart_dataflow.operators.operator_types import operator_types
from agiledart_dataflow.operators.patterns import Never, Pattern
from agiledart_dataflow.plan.specification import Options
from agiledart_dataflow.plan.step_parts import StateParts
from agiledart_dataflow.user_code.callsite import CallSite, call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, policy_options

Keep = Literal["memory", "disk"]
"""Place of a step's state: `disk` for more keys than memory holds, at some ten times the cost of a row."""


class StateOptions(TypedDict, total=False):
    """Options of every step with state; the methods of the streams give the defaults."""

    on_error: ErrorPolicy
    keep: Keep


def keyed_by(rows: Rows, function: Any, more: Sequence[Any], returns: Any) -> KeyedRows:
    """Return the rows with a key: the result of a function, or one or more expressions."""
    where = call_site()
    if isinstance(function, Expression):
        for expression in more:
            if not isinstance(expression, Expression):
                raise where.error(
                    f"key_by() takes expressions or one function of a row, not {expression!r} beside an expression"
                )
        key = KeyExpression(tuple(RowExpression(expression.node, rows.type, where) for expression in (function, *more)))
        keying = Keying(key, key.type)
    elif more:
        raise where.error("key_by() takes one function of a row, or expressions: .key_by(col(…), col(…))")
    else:
        keying = Keying(function, _key_type(rows, function, where) if returns is None else returns)
    try:
        check_key(keying.key_type)
    except SchemaError as error:
        raise where.error(f"the key: {error}") from None
    return KeyedRows(rows, keying)


def _key_type(rows: Rows, function: Callable[[Any], Any], where: CallSite) -> Any:
    try:
        return traced_type(function, rows.type)
    except UnknownTypeError as error:
        raise where.error(
            f"the type of the key is unknown, {error}: write key_by(…, returns=str), for example"
        ) from None


def itself(row: Any) -> Any:
    """Return the row as its own key, or a value as its own rank."""
    return row


def stateful(
    keyed: KeyedRows, name: str, operator: object, time_to_live: timedelta | None, **state_options: Unpack[StateOptions]
) -> Rows:
    """Return the result of the user's code over each key's rows."""
    where = call_site()
    needs_name(name, "stateful", "my-state")
    if not isinstance(operator, KeyedOperator):
        made = f"; did you mean {operator.__name__}()?" if isinstance(operator, type) else ""
        raise where.error(f"stateful() takes an instance of a KeyedOperator, not {operator!r}{made}")
    if isinstance(operator, BroadcastOperator):
        raise where.error(
            f"{type(operator).__name__} also takes a broadcast stream: write .connect(rules).stateful({name!r}, …)"
        )
    ttl_ms = span_ms("time_to_live", time_to_live)
    key_type, state_type, row_type = operator_types(operator, where)
    try:
        check_travels(state_type)
    except SchemaError as error:
        raise where.error(f"the state of {name!r}: {error}") from None
    return with_state(
        keyed,
        name,
        "stateful",
        operator,
        state_type,
        row_type,
        options=(("time_to_live_ms", str(ttl_ms)),),
        key_type=key_type,
        time_to_live_ms=ttl_ms,
        **state_options,
    )


def reduced(
    keyed: KeyedRows, name: str, function: Callable[[Any, Any], Any], **state_options: Unpack[StateOptions]
) -> Rows:
    """Return all rows of a key so far joined two by two."""
    state_type = generic(list, generic(list, keyed.type))
    operator = RunningAggregate(Reduction(function))
    return with_state(keyed, name, "running", operator, state_type, _change(keyed, keyed.type), **state_options)


def running(
    keyed: KeyedRows, name: str, aggregator: Any, results: dict[str, Any], **state_options: Unpack[StateOptions]
) -> Rows:
    """Return the value of an aggregator, or named results, over all rows of a key so far."""
    where = call_site()
    if results:
        needs_name(name, "running", "totals")
        if aggregator is not None:
            raise where.error("running() takes one aggregator, or named results, not both")
        named = named_running(name, keyed.type, results, where)
        step_options = (("results", repr(sorted(results.items()))),)
        kind = "running-values"
        return with_state(
            keyed, name, kind, named, named.state_type, named.row_type, options=step_options, **state_options
        )
    row_type = _change(keyed, aggregate_value_type(aggregator, keyed.type, call_site()))
    state_type = generic(list, aggregate_state_type(aggregator, keyed.type))
    step_options = (("aggregate", type(aggregator).__name__),)
    operator = RunningAggregate(aggregator)
    return with_state(keyed, name, "running", operator, state_type, row_type, options=step_options, **state_options)


def distinct(
    keyed: KeyedRows, name: str, time_to_live: timedelta | None, **state_options: Unpack[StateOptions]
) -> Rows:
    """Return the first row of each key."""
    ttl_ms = span_ms("time_to_live", time_to_live)
    step_options = (("time_to_live_ms", str(ttl_ms)),)
    operator = DistinctOperator(ttl_ms)
    return with_state(keyed, name, "distinct", operator, list[bool], keyed.type, options=step_options, **state_options)


def pattern(
    keyed: KeyedRows,
    name: str,
    elements: Sequence[Callable[[Any], object] | Never[Any]],
    within: timedelta,
    **state_options: Unpack[StateOptions],
) -> Rows:
    """Return matches: rows of a key that follow each other."""
    where = call_site()
    wanted = [element for element in elements if not isinstance(element, Never)]
    if any(not callable(element) for element in wanted):
        raise where.error("pattern() takes predicates (row → yes or no) and never(predicate)")
    if len(elements) < 2 or isinstance(elements[0], Never):
        raise where.error("a pattern has two elements or more and begins with a row that comes, not with never(…)")
    within_ms = span_ms("within", within)
    shape = ",".join("never" if isinstance(element, Never) else "then" for element in elements)
    step_options = (("elements", shape), ("within_ms", str(within_ms)))
    state_type = generic(list, generic(tuple, list[int], generic(list, keyed.type)))
    row_type = generic(Match, keyed.key_type, keyed.type)
    operator = Pattern(elements, within_ms)
    return with_state(keyed, name, "pattern", operator, state_type, row_type, options=step_options, **state_options)


def with_state(
    keyed: KeyedRows,
    name: str,
    kind: str,
    operator: KeyedOperator[Any, Any, Any, Any] | NamedRunning,
    state_type: Any,
    row_type: Any,
    *others: Rows,
    on_error: ErrorPolicy = "fail",
    keep: Keep = "memory",
    options: Options = (),
    key_type: Any = None,
    **more: Any,
) -> Rows:
    """Add a step with state by key, which takes these rows, and others beside them."""
    needs_name(name, kind, f"my-{kind}")
    check_keep(name, keep)
    policy_options_of_step = policy_options(on_error, call_site())
    return keyed.add(
        name,
        kind,
        row_type,
        *others,
        key_type=key_type,
        options=(*policy_options_of_step, *options, ("keep", keep)),
        on_error=on_error,
        state=StateParts(operator, state_type, keep, **more),
    )


def check_keep(name: str, keep: object) -> None:
    """Raise `TopologyError` for an unknown place of state."""
    if keep not in ("memory", "disk"):
        raise call_site().error(f"{name!r} keeps its state in 'memory' or on 'disk', not {keep!r}")


def _change(keyed: KeyedRows, value: Any) -> Any:
    return generic(Change, keyed.key_type, value, keyed.type)
