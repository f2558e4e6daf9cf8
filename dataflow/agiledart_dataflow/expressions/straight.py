"""Compiler of an expression of numbers into one straight NumPy function, for batches without None and with the usual kinds.

Walking the tree costs some microseconds a node and batch, which shows at a thousand rows. The function is made once; it calls
the same kernels where they have to look at the values, and writes the rest as plain arithmetic. `vectors.py` handles all other
expressions and batches.
"""

from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.column import Column
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.expressions.kernels import KERNELS
from agiledart_dataflow.expressions.nodes import Typed, TypedCall, TypedField, TypedLiteral
from agiledart_dataflow.expressions.python_text import Scope
from agiledart_dataflow.expressions.text_kernels import UnsupportedBatch

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

_PLAIN = ("int", "float", "bool")
_NEVER_ODD = ("+", "-", "*")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_EXACT = 2**53


class _Unable(Exception):
    """Signal: this expression has no straight function."""


class Straight:
    """The function of one expression.

    Args:
        fields: (name, kind) of the arrays that it takes.
        function: arrays → array. May raise `UnsupportedBatch` or OverflowError, and then has no effect.
        kind: of the result.
    """

    __slots__ = ("_fields", "_function", "_kind")

    def __init__(self, fields: list[tuple[str, str]], function: Callable[..., Any], kind: Any) -> None:
        self._fields = fields
        self._function = function
        self._kind = kind

    def column(self, columns: Columns) -> Column | None:
        """Return the values; None when the function cannot handle these rows."""
        arrays = []
        for name, kind in self._fields:
            column = columns.named(name)
            if column.kind != kind or column.valid is not None:
                return None
            arrays.append(column.values)
        try:
            return Column(self._kind, self._function(*arrays))
        except (UnsupportedBatch, OverflowError):
            return None


def straight(node: Typed) -> Straight:
    """Return the function of an expression; where there can be none, a function that handles no rows."""
    writer = _StraightWriter()
    try:
        if not isinstance(node, TypedCall):
            raise _Unable
        result = writer.of(node)
    except _Unable:
        return Straight([], _odd, node.type.kind)
    parameters = list(writer.fields.values())
    lines = [f"def run({', '.join(parameters)}):", *(f" {line}" for line in writer.lines), f" return {result}"]
    exec("\n".join(lines), writer.scope.values)  # the engine's own text: field names do not appear in it
    return Straight(list(writer.fields), writer.scope.values["run"], node.type.kind)


def _odd() -> Any:
    raise UnsupportedBatch


class _StraightWriter:
    """Writer of one line per function; arrays and numbers have names."""

    def __init__(self) -> None:
        self.scope = Scope()
        self.lines: list[str] = []
        self.fields: dict[tuple[str, str], str] = {}

    def of(self, node: Typed) -> str:
        """Return the name or text of a value."""
        kind = node.type.kind
        if node.type.optional or kind not in _PLAIN:
            raise _Unable
        if isinstance(node, TypedField):
            return self.fields.setdefault((node.name, kind), f"c{len(self.fields)}")
        if isinstance(node, TypedLiteral):
            if kind == "float" and not isfinite(node.value):
                return self.scope.bind(node.value)
            return f"({node.value!r})"
        if not isinstance(node, TypedCall) or not any(map(_has_field, node.arguments)):
            raise _Unable
        text = self._call(node)
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _call(self, node: TypedCall) -> str:
        kinds = tuple(argument.type.kind for argument in node.arguments)
        if node.name in ("and", "or", "not"):
            texts = [self.of(argument) for argument in node.arguments]
            if not all(map(_has_field, node.arguments)):
                raise _Unable
            return (
                f"~{texts[0]}" if node.name == "not" else f"{texts[0]} {'&' if node.name == 'and' else '|'} {texts[1]}"
            )
        texts = [
            self._as_float(argument) if self._is_mixed(node, kinds) else self.of(argument)
            for argument in node.arguments
        ]
        if node.name in _NEVER_ODD and "float" in kinds:
            return f"{texts[0]} {node.name} {texts[1]}"
        if node.name in _COMPARISONS and (kinds[0] == kinds[1] or self._compares_small_literal(node)):
            return f"{texts[0]} {node.name} {texts[1]}"
        if node.name not in KERNELS:
            raise _Unable
        kernel = self.scope.bind(KERNELS[node.name])
        return f"{kernel}({kinds!r}, {self.scope.bind(node.options)}, {', '.join(texts)})"

    def _is_mixed(self, node: TypedCall, kinds: tuple[str, ...]) -> bool:
        return node.name in _NEVER_ODD and "float" in kinds and "int" in kinds

    def _as_float(self, node: Typed) -> str:
        """Return the text of an int beside a float, converted as in Python."""
        if node.type.kind == "float":
            return self.of(node)
        if isinstance(node, TypedLiteral):
            return f"({float(node.value)!r})"
        return f"{self.of(node)}.astype({self.scope.bind(np.float64)})"

    def _compares_small_literal(self, node: TypedCall) -> bool:
        """Return whether an int literal stands beside a float, and is exact as a float."""
        return any(
            isinstance(argument, TypedLiteral) and argument.type.kind == "int" and abs(argument.value) <= _EXACT
            for argument in node.arguments
        )


def _has_field(node: Typed) -> bool:
    if isinstance(node, TypedField):
        return True
    return isinstance(node, TypedCall) and any(map(_has_field, node.arguments))
