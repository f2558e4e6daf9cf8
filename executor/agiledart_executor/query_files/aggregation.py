"""Aggregates of SQL over a window: NULL is left out, and an aggregate of nothing but NULL is NULL, as in SQL."""

import ast
from datetime import datetime
from typing import Any, Final

from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.column_types import NUMBERS, ColumnType, TypedCode
from agiledart_executor.query_files.expression_translator import ExpressionTranslator

AGGREGATES: Final = ("count", "sum", "avg", "min", "max")

_METHODS: Final = {"sum": "sum", "avg": "mean", "min": "min", "max": "max"}
_EXTREMES: Final[dict[str, tuple[Any, Any]]] = {
    "int": (2**63 - 1, -(2**63)),
    "float": (float("inf"), float("-inf")),
    "time": (datetime.max, datetime.min),  # noqa: DTZ901  times of rows are UTC without a zone
}
"""Type → values in place of NULL that are never the least, never the greatest."""


class WindowAggregates:
    """Aggregates of one query: their arguments become columns before the window, their results columns behind it."""

    def __init__(self, rows: ExpressionTranslator) -> None:
        self._rows = rows
        self.arguments: dict[str, TypedCode] = {}
        self.results: dict[str, ast.expr] = {}
        self._seen: dict[str, TypedCode] = {}

    def translate(self, node: Any) -> TypedCode | None:
        """Return an aggregate as an expression of the results; None for a node that is none."""
        if node.key not in AGGREGATES:
            return None
        text = node.sql()
        if text not in self._seen:
            self._seen[text] = self._translated(node)
        return self._seen[text]

    def _translated(self, node: Any) -> TypedCode:
        if any(inner.key in AGGREGATES for inner in node.walk() if inner is not node):
            self._rows.place(node).refuse(f"an aggregate within an aggregate: {node.sql()[:60]}")
        if node.this is not None and node.this.key == "distinct":
            self._rows.place(node).refuse(f"{node.key.upper()}(DISTINCT …) is not supported")
        if extra := [name for name, part in node.args.items() if part and name not in ("this", "big_int")]:
            self._rows.place(node).refuse(f"{extra[0].upper()} of {node.sql()[:60]} is not supported")
        if node.key == "count" and (node.this is None or node.this.key == "star"):
            return self._count_of_rows()
        inner = self._rows.translate(node.this)
        if inner.type is None:
            self._rows.place(node).refuse(f"{node.key.upper()} of NULL is NULL")
        if node.key == "count":
            return self._count(inner)
        allowed = NUMBERS if node.key in ("sum", "avg") else (*NUMBERS, "time")
        if inner.type.name not in allowed:
            self._rows.place(node).refuse(f"{node.key.upper()} does not work on {inner.type}: {node.sql()[:60]}")
        kind = inner.type if node.key != "avg" else ColumnType("float", inner.nullable)
        if not inner.nullable:
            return TypedCode(self._result(inner.code, inner.type, _METHODS[node.key]), kind)
        return self._without_null(node.key, inner, inner.type)

    def _without_null(self, key: str, inner: TypedCode, column_type: ColumnType) -> TypedCode:
        """Return an aggregate of the values that are not NULL."""
        filled: Any = 0 if column_type.name == "int" else 0.0
        if key in ("min", "max"):
            filled = _EXTREMES[column_type.name][key == "max"]
        present = py.method(inner.code, "fill_null", py.value(filled))
        plain = ColumnType(column_type.name, nullable=False)
        number = self._count(inner).code
        if key == "avg":
            value = py.binary(self._result(present, plain, "sum"), "/", number)
        else:
            value = self._result(present, plain, _METHODS[key])
        code = py.when(py.binary(number, ">", py.literal(0)), value, py.value(None))
        return TypedCode(code, ColumnType("float" if key == "avg" else column_type.name))

    def _count_of_rows(self) -> TypedCode:
        return TypedCode(self._named(py.call(py.name("count"))), ColumnType("int", nullable=False))

    def _count(self, inner: TypedCode) -> TypedCode:
        """Count the values that are not NULL."""
        if not inner.nullable:
            return self._count_of_rows()
        one_or_none = py.when(py.method(inner.code, "is_null"), py.value(0), py.value(1))
        plain = ColumnType("int", nullable=False)
        return TypedCode(self._result(one_or_none, plain, "sum"), plain)

    def _result(self, argument: ast.expr, column_type: ColumnType, method: str) -> ast.expr:
        dumped = ast.dump(argument)
        field = next((name for name, known in self.arguments.items() if ast.dump(known.code) == dumped), "")
        if not field:
            field = f"argument_{len(self.arguments)}"
            self.arguments[field] = TypedCode(argument, column_type)
        return self._named(py.method(py.column(field), method))

    def _named(self, aggregate: ast.expr) -> ast.expr:
        """Return the column of a result; equal aggregates have one."""
        dumped = ast.dump(aggregate)
        field = next((name for name, known in self.results.items() if ast.dump(known) == dumped), "")
        if not field:
            field = f"result_{len(self.results)}"
            self.results[field] = aggregate
        return py.column(field)
