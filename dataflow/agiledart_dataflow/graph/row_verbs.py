"""Verbs on single rows: map, filter, flat_map, union, sink."""

from collections.abc import Callable, Sequence
from typing import Any

from agiledart_dataflow.data.inference import UnknownTypeError, element_type, is_lambda, return_annotation, traced_type
from agiledart_dataflow.expressions.expression import Expression
from agiledart_dataflow.graph.graph import Rows
from agiledart_dataflow.graph.source_times import with_times
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.step_parts import RowParts
from agiledart_dataflow.user_code.callsite import CallSite, call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, policy_options


def mapped(
    rows: Rows,
    function: Callable[..., Any],
    name: str | None,
    returns: Any,
    on_error: ErrorPolicy,
    event_time: Any = None,
) -> Rows:
    """Return the rows that a function makes, one of each row."""
    where = call_site()
    name = step_name(function, name, "map", where)
    policy = policy_options(on_error, where)
    if returns is None:
        try:
            returns = traced_type(function, rows.type)
        except UnknownTypeError as error:
            raise where.error(_ask_returns("map", name, error)) from None
    made = rows.add(name, "map", returns, function=function, options=policy, on_error=on_error)
    return with_times(made, event_time, where)


def filtered(rows: Rows, function: Callable[..., Any], name: str | None, on_error: ErrorPolicy) -> Rows:
    """Return the rows for which a function is true."""
    where = call_site()
    name = step_name(function, name, "filter", where)
    return rows.add(
        name, "filter", rows.type, function=function, options=policy_options(on_error, where), on_error=on_error
    )


def flat_mapped(
    rows: Rows,
    function: Callable[..., Any],
    name: str | None,
    returns: Any,
    on_error: ErrorPolicy,
    event_time: Any = None,
) -> Rows:
    """Return the rows that a function makes, none, one or many of each row."""
    where = call_site()
    name = step_name(function, name, "flat_map", where)
    many = True
    try:
        annotated, many = element_type(return_annotation(function))
    except UnknownTypeError as error:
        if returns is None:
            raise where.error(_ask_returns("flat_map", name, error)) from None
        annotated = returns
    policy = policy_options(on_error, where)
    made = rows.add(
        name,
        "flat_map",
        annotated if returns is None else returns,
        function=function,
        options=(("yields", "many" if many else "optional"), *policy),
        on_error=on_error,
        rows=RowParts(many=many),
    )
    return with_times(made, event_time, where)


def union(rows: Rows, others: Sequence[object], name: str) -> Rows:
    """Return the rows of several steps, which are of one type."""
    where = call_site()
    if not others:
        raise where.error("union() needs at least one other stream")
    joined: list[Rows] = []
    for other in others:
        if not isinstance(other, Rows):
            raise where.error("union() joins streams of rows, and one of these is none")
        if other.graph is not rows.graph:
            raise where.error("union() joins streams of one topology; one of these belongs to another")
        if other.type != rows.type:
            raise where.error(f"union() joins rows of one type, not {rows.type!r} and {other.type!r}")
        joined.append(other)
    return rows.add(name, "union", rows.type, *joined)


def sink(rows: Rows, name: str, connector: object, at: str | None) -> None:
    """Write the rows to a sink outside the application."""
    where = call_site()
    if not isinstance(connector, Connector):
        hint = f"; did you mean csv({connector!r})?" if isinstance(connector, str) else ""
        raise where.error(
            f"sink {name!r} needs a connector such as csv(…), jsonl(…), stdout(), not {connector!r}{hint}"
        )
    rows.add(name, "sink", rows.type, connector=connector, at=connector.at if at is None else at)


_OF_EXPRESSIONS = {
    "filter": "use .where(…), which keeps the rows for which the expression is true",
    "map": "use .with_columns(name=…) to add fields, or .select(…) to choose them",
    "flat_map": "use .where(…), .with_columns(name=…) or .select(…)",
}
"""Verb of functions → the verb that takes expressions."""


def step_name(function: Any, name: str | None, verb: str, where: CallSite) -> str:
    """Return the name of a step that is made from a function: the given one, or the function's own."""
    if isinstance(function, str):
        raise where.error(f'{verb} takes the function first, then the name: .{verb}(function, name="{function}")')
    if isinstance(function, Expression):
        raise where.error(f"{verb}() takes a function of a row, not an expression: {_OF_EXPRESSIONS[verb]}")
    if not callable(function):
        raise where.error(f"{verb}() takes a function of a row, not {function!r}")
    if name is not None:
        return name
    if is_lambda(function):
        raise where.error(
            f'{verb}() with a lambda needs a name, which errors and statistics show:  .{verb}(…, name="…")'
        )
    return str(function.__name__)


def _ask_returns(verb: str, name: str, error: UnknownTypeError) -> str:
    """Return advice for a step whose row type is unknown."""
    return (
        f"the type of the rows after {name!r} is unknown, {error}: annotate the function (-> Row), or write"
        f" {verb}(…, returns=Row)"
    )


def with_paths(rows: Rows, paths: str | Sequence[str]) -> Rows:
    """Return the same rows, which may take these paths to other nodes."""
    rows.graph.paths_behind[rows.step.index] = rows.graph.paths_given(paths, call_site())
    return rows
