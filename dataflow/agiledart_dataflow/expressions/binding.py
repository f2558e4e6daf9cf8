"""Type check of an expression against a row type: every field exists, every function takes its arguments."""

from difflib import get_close_matches
from typing import Any

from agiledart_dataflow.data.column_schema import ColumnSchema, column_field, schema_of
from agiledart_dataflow.data.inference import optional_stripped
from agiledart_dataflow.data.schema import SchemaError, is_dict
from agiledart_dataflow.expressions.functions import FUNCTIONS, PYTHON_TYPES, MismatchError
from agiledart_dataflow.expressions.nodes import (
    CallNode,
    FieldNode,
    Literal,
    Node,
    Typed,
    TypedCall,
    TypedField,
    TypedLiteral,
    TypedWhen,
    ValueType,
    When,
)
from agiledart_dataflow.user_code.callsite import CallSite

_NOTHING = ValueType("object", True, type(None))
"""Type of None before another value determines it."""

_ALIGNED = ("minimum", "maximum", "fill_null")
"""Functions whose ints become floats beside floats, so that the result has one type."""


def bound(node: Node, row_type: Any, where: CallSite) -> Typed:
    """Return the expression with types. Raises `TopologyError` with the user's line."""
    try:
        return _Binder(schema_of(row_type)).bind(node)
    except (MismatchError, SchemaError) as error:
        raise where.error(str(error)) from None


class _Binder:
    def __init__(self, schema: ColumnSchema) -> None:
        self._schema = schema

    def bind(self, node: Node) -> Typed:
        if isinstance(node, FieldNode):
            return self._field(node.name)
        if isinstance(node, Literal):
            return _literal(node.value)
        if isinstance(node, When):
            return self._when(node)
        return self._call(node)

    def _field(self, name: str) -> Typed:
        number = self._schema.index.get(name)
        if number is None and is_dict(self._schema.row_type):
            raise MismatchError(
                f"the rows are dicts, whose fields have no types: use a function, such as lambda row: row[{name!r}], or make"
                " the rows a NamedTuple"
            )
        if number is None:
            names = list(self._schema.index)
            near = get_close_matches(name, names, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise MismatchError(f"the rows have no field {name!r}; {meant}There are {', '.join(names)}")
        field = self._schema.fields[number]
        return TypedField(name, ValueType(field.kind, field.optional, optional_stripped(field.type)))

    def _call(self, node: CallNode) -> Typed:
        arguments = tuple(map(self.bind, node.arguments))
        types = [argument.type for argument in arguments if argument.type is not _NOTHING]
        if len(types) < len(arguments):
            if node.name in ("==", "!="):
                raise MismatchError("nothing equals None here: write .is_null() or .is_not_null()")
            if not types:
                raise MismatchError(f"{node.name} of None is always None")
            arguments = tuple(_with_inferred_type(argument, types[0]) for argument in arguments)
        if node.name in _ALIGNED:
            arguments = _aligned(arguments)
        types = [argument.type for argument in arguments]
        kind = FUNCTIONS[node.name].rule(node.name, tuple(types), node.options)
        optional = any(argument.optional for argument in types)
        if node.name == "is_null":
            optional = False
        elif node.name == "fill_null":
            optional = types[1].optional
        of = types[0].type if kind == "object" else PYTHON_TYPES[kind]
        if node.name == "cast":
            (of,) = node.options
        if node.name in (*_ALIGNED, "and", "or") and kind == types[0].kind:
            of = types[0].type if all(argument.type == types[0].type for argument in types) else of
        return TypedCall(node.name, arguments, node.options, ValueType(kind, optional, of))

    def _when(self, node: When) -> Typed:
        conditions = [self.bind(condition) for condition, _ in node.branches]
        for condition in conditions:
            if condition.type.kind != "bool":
                raise MismatchError(f"when takes a condition, not a value of type {condition.type}")
        values = [self.bind(value) for value in (*(value for _, value in node.branches), node.otherwise)]
        known = [value.type for value in values if value.type is not _NOTHING]
        if not known:
            raise MismatchError("when(…) gives None whatever the condition; its type is not known")
        values = list(_aligned(tuple(_with_inferred_type(value, known[0]) for value in values)))
        first = values[0].type
        if any(value.type.kind != first.kind or value.type.type != first.type for value in values):
            types_text = ", ".join(str(value.type) for value in values)
            raise MismatchError(f"the branches of when(…) have values of one type, not {types_text}")
        of = ValueType(first.kind, any(value.type.optional for value in values), first.type)
        return TypedWhen(tuple(zip(conditions, values[:-1], strict=True)), values[-1], of)


def _literal(value: Any) -> Typed:
    if value is None:
        return TypedLiteral(None, _NOTHING)
    field = column_field("", type(value))
    if field.kind == "int" and not -(2**63) <= value < 2**63:
        raise MismatchError(f"{value} does not fit 64 bits")
    return TypedLiteral(value, ValueType(field.kind, False, type(value)))


def _with_inferred_type(typed: Typed, beside: ValueType) -> Typed:
    """Return the expression; None gets the type of the value beside it."""
    if typed.type is _NOTHING:
        return TypedLiteral(None, ValueType(beside.kind, True, beside.type))
    return typed


def _aligned(arguments: tuple[Typed, ...]) -> tuple[Typed, ...]:
    """Return ints as floats when there is a float among them."""
    kinds = [argument.type.kind for argument in arguments]
    if "float" not in kinds or "int" not in kinds:
        return arguments
    return tuple(
        TypedCall("cast", (argument,), (float,), ValueType("float", argument.type.optional, float))
        if argument.type.kind == "int"
        else argument
        for argument in arguments
    )


def fields_used(node: Node) -> frozenset[str]:
    """Return the names of the fields that an expression reads."""
    if isinstance(node, FieldNode):
        return frozenset((node.name,))
    if isinstance(node, Literal):
        return frozenset()
    if isinstance(node, When):
        parts = [part for branch in node.branches for part in branch] + [node.otherwise]
    else:
        parts = list(node.arguments)
    return frozenset().union(*map(fields_used, parts))
