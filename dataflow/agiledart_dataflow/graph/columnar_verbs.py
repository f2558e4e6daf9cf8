"""Verbs that take expressions or work on many rows at once: where, with_columns, select, map_batches.

Steps of expressions need no name; they get the verb's, numbered from the second on.
"""

from collections.abc import Callable, Sequence
from typing import Any

from agiledart_dataflow.data.column_schema import schema_of
from agiledart_dataflow.expressions.expression import Expression, col, node_of
from agiledart_dataflow.expressions.nodes import FieldNode
from agiledart_dataflow.expressions.row_expression import RowBuilder, RowExpression, made_row_type
from agiledart_dataflow.graph.graph import Graph, Rows
from agiledart_dataflow.graph.row_verbs import step_name
from agiledart_dataflow.operators.batch_functions import VectorFunction, form_of
from agiledart_dataflow.operators.vector_chain import VectorBuild, VectorWhere
from agiledart_dataflow.plan.step_parts import RowParts
from agiledart_dataflow.user_code.callsite import CallSite, call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, policy_options


def chosen(rows: Rows, condition: object, step: str | None, on_error: ErrorPolicy) -> Rows:
    """Return the rows for which a condition is True."""
    where = call_site()
    if not isinstance(condition, Expression):
        hint = "; for a function of a row there is .filter" if callable(condition) else ""
        raise where.error(f'where() takes an expression such as col("fare") > 10, not {condition!r}{hint}')
    value = RowExpression(condition.node, rows.type, where)
    if value.type.kind != "bool":
        raise where.error(f"where() takes a condition, which is True or False, not a value of type {value.type}")
    parts = RowParts(inline=value, vector=VectorWhere(value))
    return _expressed(rows, "where", step, rows.type, repr(condition.node), parts, on_error)


def with_columns(rows: Rows, columns: dict[str, object], name: str | Expression | None, on_error: ErrorPolicy) -> Rows:
    """Return the rows with more fields, or with other values in existing fields."""
    where = call_site()
    step, columns = _step_and_columns(name, columns, where)
    if not columns:
        raise where.error('with_columns() takes fields and their values: .with_columns(ratio=col("tip") / col("fare"))')
    unchanged = {field.name: col(field.name) for field in schema_of(rows.type).fields}
    return _built(rows, "with_columns", step, {**unchanged, **columns}, on_error, where)


def selected(
    rows: Rows,
    fields: Sequence[object],
    columns: dict[str, object],
    name: str | Expression | None,
    on_error: ErrorPolicy,
) -> Rows:
    """Return rows with these fields only."""
    where = call_site()
    step, columns = _step_and_columns(name, columns, where)
    values: dict[str, object] = {}
    for field in fields:
        chosen = field.node.name if isinstance(field, Expression) and isinstance(field.node, FieldNode) else field
        if not isinstance(chosen, str):
            raise where.error("select() takes names of fields; give a value a name of its own: .select(ratio=…)")
        if chosen in values or chosen in columns:
            raise where.error(f"select() names {chosen!r} twice")
        values[chosen] = col(chosen)
    if not values and not columns:
        raise where.error('select() takes at least one field: .select("zone", ratio=col("tip") / col("fare"))')
    return _built(rows, "select", step, {**values, **columns}, on_error, where)


def mapped_batches(
    rows: Rows, function: Callable[..., Any], name: str | None, returns: Any, resizes: bool, on_error: ErrorPolicy
) -> Rows:
    """Return the result of a function that takes many rows at once."""
    where = call_site()
    name = step_name(function, name, "map_batches", where)
    row_type = rows.type if returns is None else returns
    schema_of(row_type)
    policy = policy_options(on_error, where)
    vector = VectorFunction(name, function, form_of(function, where), row_type, resizes=resizes, policy=on_error)
    options = (*((("yields", "many"),) if resizes else ()), *policy)
    parts = RowParts(vector=vector)
    return rows.add(name, "map_batches", row_type, function=function, options=options, on_error=on_error, rows=parts)


def _step_and_columns(
    name: str | Expression | None, columns: dict[str, object], where: CallSite
) -> tuple[str | None, dict[str, object]]:
    """Return the step's name and the new fields; an expression called `name` is a field like any other."""
    if isinstance(columns.get("step_name"), str):
        raise where.error(f"a step is named by name={columns['step_name']!r} in every verb; for a field: lit(…)")
    if isinstance(name, Expression):
        return None, {**columns, "name": name}
    return name, columns


def _built(
    rows: Rows, verb: str, step: str | None, values: dict[str, object], on_error: ErrorPolicy, where: CallSite
) -> Rows:
    made = {name: RowExpression(node_of(value), rows.type, where) for name, value in values.items()}
    for name, value in made.items():
        if value.type.type is type(None):
            raise where.error(f"{name} is always None, whose type is not known")
    old = {field.name: field.type for field in schema_of(rows.type).fields}
    step = _free_name(rows.graph, verb, step)
    fields = {
        name: old[value.field] if value.field is not None else value.type.annotation for name, value in made.items()
    }
    row_type = made_row_type(step, fields, where)
    builder = RowBuilder(row_type, rows.type, made)
    nodes = repr([(name, value.node) for name, value in made.items()])
    parts = RowParts(inline=builder, vector=VectorBuild(builder))
    return _expressed(rows, verb, step, row_type, nodes, parts, on_error)


def _expressed(
    rows: Rows,
    verb: str,
    step: str | None,
    row_type: Any,
    meaning: str,
    parts: RowParts,
    on_error: ErrorPolicy,
) -> Rows:
    """Add a step of expressions; the text of the expressions is part of the specification."""
    policy = policy_options(on_error, call_site())
    return rows.add(
        _free_name(rows.graph, verb, step),
        verb,
        row_type,
        function=parts.inline,
        options=(("expressions", meaning), *policy),
        on_error=on_error,
        rows=parts,
    )


def _free_name(graph: Graph, verb: str, given: str | None) -> str:
    if given is not None:
        return given
    taken = {step.name for step in graph.steps}
    number = 1
    while (name := verb if number == 1 else f"{verb}-{number}") in taken:
        number += 1
    return name
