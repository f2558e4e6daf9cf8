"""Verbs that join two streams by key: window_join, interval_join, lookup, and stateful with a broadcast stream."""

from datetime import timedelta
from typing import Any, Unpack

from agiledart_dataflow.data.rows import Joined
from agiledart_dataflow.data.schema import SchemaError, check_travels, generic, type_text
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.graph.graph import KeyedRows, Rows, needs_name, span_ms
from agiledart_dataflow.graph.keyed_verbs import StateOptions, with_state
from agiledart_dataflow.operators.joins import IntervalJoin, LookupJoin, WindowJoin
from agiledart_dataflow.operators.keyed import BroadcastOperator, KeyedOperator
from agiledart_dataflow.operators.operator_types import operator_types, shared_type
from agiledart_dataflow.plan.specification import Options
from agiledart_dataflow.user_code.callsite import call_site


def window_join(
    left: KeyedRows, name: str, other: object, window: object, how: Any, **state_options: Unpack[StateOptions]
) -> Rows:
    """Return all pairs of rows of one key and one window."""
    where = call_site()
    if not isinstance(window, Panes) or window.lateness_ms:
        raise where.error(f"window_join() takes tumbling(…) or hopping(…) without lateness, not {window!r}")
    _check_how(how, "inner", "left", "outer")
    right = _right(left, name, "window-join", other)
    state_type = generic(dict, int, generic(tuple, generic(list, left.type), generic(list, right.type)))
    step_options = (("how", how), ("window", str(window)))
    return _joined(
        left, right, name, "window-join", WindowJoin(window, how), state_type, how, step_options, **state_options
    )


def interval_join(
    left: KeyedRows,
    name: str,
    other: object,
    earliest: timedelta,
    latest: timedelta,
    how: Any,
    **state_options: Unpack[StateOptions],
) -> Rows:
    """Return pairs of rows of one key whose times differ by a bounded amount."""
    where = call_site()
    earliest_ms = span_ms("earliest", earliest, least=None)
    latest_ms = span_ms("latest", latest, least=None)
    if earliest_ms > latest_ms:
        raise where.error(f"interval_join(): earliest={earliest} is after latest={latest}")
    _check_how(how, "inner", "left")
    right = _right(left, name, "interval-join", other)
    lefts = generic(list, generic(tuple, int, left.type, bool))
    state_type = generic(tuple, lefts, generic(list, generic(tuple, int, right.type)))
    step_options = (("earliest_ms", str(earliest_ms)), ("how", how), ("latest_ms", str(latest_ms)))
    operator = IntervalJoin(earliest_ms, latest_ms, how)
    return _joined(left, right, name, "interval-join", operator, state_type, how, step_options, **state_options)


def lookup(left: KeyedRows, name: str, table: object, how: Any, **state_options: Unpack[StateOptions]) -> Rows:
    """Return each row with the newest row of the table that has its key."""
    _check_how(how, "inner", "left")
    right = _right(left, name, "lookup", table)
    state_type, step_options = generic(list, right.type), (("how", how),)
    return _joined(left, right, name, "lookup", LookupJoin(how), state_type, how, step_options, **state_options)


def check_broadcast(keyed: KeyedRows, broadcast: object) -> Rows:
    """Return the rows of a stream that every instance receives in full. Raises `TopologyError` for anything else."""
    if not isinstance(broadcast, Rows) or broadcast.graph is not keyed.rows.graph:
        raise call_site().error("connect() takes a stream of the same topology")
    return broadcast


def stateful_beside(
    keyed: KeyedRows, broadcast: Rows, name: str, operator: object, **state_options: Unpack[StateOptions]
) -> Rows:
    """Return the result of user code over each key's rows and the value built from the broadcast stream."""
    where = call_site()
    needs_name(name, "stateful", "my-state")
    if not isinstance(operator, BroadcastOperator):
        raise where.error(f"after connect() stateful() takes a BroadcastOperator, not {operator!r}")
    key_type, state_type, row_type = operator_types(operator, where)
    shared = shared_type(operator, where)
    for what, kind in (("state", state_type), ("shared value", shared)):
        try:
            check_travels(kind)
        except SchemaError as error:
            raise where.error(f"the {what} of {name!r}: {error}") from None
    return with_state(
        keyed,
        name,
        "broadcast",
        operator,
        state_type,
        row_type,
        broadcast,
        key_type=key_type,
        shared_type=shared,
        key_functions=(keyed.key_of, None),
        **state_options,
    )


def _check_how(how: object, *known: str) -> None:
    if how not in known:
        raise call_site().error(f"how is {' or '.join(map(repr, known))}, not {how!r}")


def _right(left: KeyedRows, name: str, kind: str, other: object) -> KeyedRows:
    """Return the other side of a join. Raises `TopologyError` when these rows cannot be joined with it."""
    where = call_site()
    needs_name(name, kind, f"my-{kind}")
    if not isinstance(other, KeyedRows) or other.rows.graph is not left.rows.graph:
        raise where.error(f"{name!r} joins with keyed rows of the same topology: other.key_by(function)")
    keys = type_text(left.key_type), type_text(other.key_type)
    if keys[0] != keys[1]:
        raise where.error(f"{name!r} joins keys of one type, not {keys[0]} and {keys[1]}")
    return other


def _joined(
    left: KeyedRows,
    right: KeyedRows,
    name: str,
    kind: str,
    operator: KeyedOperator[Any, Any, Any, Any],
    state_type: Any,
    how: str,
    options: Options,
    **state_options: Unpack[StateOptions],
) -> Rows:
    """Add a step with two keyed inputs; a side may be None in a pair where `how` keeps rows without a partner."""
    row_type = generic(
        Joined,
        left.key_type,
        left.type | None if how == "outer" else left.type,
        right.type if how == "inner" else right.type | None,
    )
    return with_state(
        left,
        name,
        kind,
        operator,
        state_type,
        row_type,
        right.rows,
        options=options,
        other_rows=None if left.type == right.type else right.type,
        key_functions=(left.key_of, right.key_of),
        **state_options,
    )
