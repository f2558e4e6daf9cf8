"""Translator of SQL expressions to column expressions, with types, NULL as SQL has it, and refusals at their place."""

import ast
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final

from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.column_types import NUMBERS, ColumnType, TypedCode, TypeName
from agiledart_executor.query_files.sql_text import SqlText
from agiledart_executor.query_files.text_place import TextPlace

UNITS: Final = {"MILLISECOND": 0.001, "SECOND": 1.0, "MINUTE": 60.0, "HOUR": 3600.0, "DAY": 86400.0, "WEEK": 604800.0}

_COMPARISONS: Final = {"eq": "==", "neq": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_ARITHMETIC: Final = {"add": "+", "sub": "-", "mul": "*"}
_TEXT_CALLS: Final = {"lower": "lower", "upper": "upper", "trim": "strip"}
_ROUNDING: Final = {"floor": "floor", "ceil": "ceil"}
_PARTS: Final = {"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"}
_CASTS: Final[dict[str, TypeName]] = {
    **dict.fromkeys(("INT", "BIGINT", "SMALLINT", "TINYINT"), "int"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), "float"),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "NVARCHAR"), "text"),
    "BOOLEAN": "bool",
}

Special = Callable[[Any], TypedCode | None]


class ExpressionTranslator:
    """Translator of the expressions over the columns of one relation.

    Args:
        text: the SQL that the expressions come from.
        columns: name → (name of the field, type). A name may be written `alias.name`.
        place: of the statement, where an expression has none of its own.
        special: translates what has another meaning here, such as an aggregate; None for everything else.
    """

    def __init__(
        self,
        text: SqlText,
        columns: Mapping[str, tuple[str, ColumnType]],
        place: TextPlace,
        special: Special | None = None,
    ) -> None:
        self._text, self._columns, self._place = text, columns, place
        self._special = special
        self._kinds: dict[str, Callable[[Any], TypedCode]] = {
            "abs": self._absolute,
            "and": self._and_or,
            "between": self._between,
            "boolean": self._boolean,
            "case": self._case,
            "cast": self._cast,
            "coalesce": self._coalesce,
            "column": self._column,
            "div": self._division,
            "dpipe": self._concat,
            "extract": self._extract,
            "in": self._in,
            "interval": self._interval,
            "is": self._is,
            "length": self._length,
            "like": self._like,
            "literal": self._literal,
            "mod": self._remainder,
            "neg": self._negative,
            "not": self._not,
            "null": self._null,
            "nullif": self._null_if,
            "or": self._and_or,
            "paren": self._paren,
            "round": self._round,
            "sqrt": self._root,
            "datetrunc": self._truncated,
            "timestamptrunc": self._truncated,
        }

    def place(self, node: Any) -> TextPlace:
        """Return the place of a node."""
        return self._text.place_of_node(node, self._place)

    def condition(self, node: Any) -> ast.expr:
        """Translate a condition."""
        return self._of_type(node, "bool").code

    def translate(self, node: Any) -> TypedCode:
        """Translate an expression. Raises `QueryFileError` with its place."""
        if self._special is not None and (special := self._special(node)) is not None:
            return special
        kind = node.key
        if kind in self._kinds or kind in _OTHER_KINDS:
            self._refuse_other_parts(node)
        if kind in _COMPARISONS:
            return self._comparison(node, _COMPARISONS[kind])
        if kind in _ARITHMETIC:
            return self._arithmetic(node, _ARITHMETIC[kind])
        if kind in _TEXT_CALLS:
            inner = self._of_type(node.this, "text")
            return TypedCode(py.method(inner.code, _TEXT_CALLS[kind]), ColumnType("text", inner.nullable))
        if kind in _ROUNDING:
            inner = self._number(node.this)
            return TypedCode(py.method(inner.code, _ROUNDING[kind]), ColumnType("int", inner.nullable))
        translate = self._kinds.get(kind)
        if translate is None:
            shown = node.sql()[:60]
            self.place(node).refuse(f"{shown} is not supported: {', '.join(SUPPORTED)} are")
        return translate(node)

    def _refuse_other_parts(self, node: Any) -> None:
        """Refuse what a form has beyond the parts that are translated; nothing is left out silently."""
        known = _PARTS_OF.get(node.key, _TWO_PARTS)
        extra = [name for name, part in node.args.items() if part and name not in known]
        if extra:
            self.place(node).refuse(f"{extra[0].replace('_', ' ').upper()} of {node.sql()[:60]} is not supported")

    # ---- leaves

    def _column(self, node: Any) -> TypedCode:
        name = f"{node.table}.{node.name}" if node.table else node.name
        if name == "*" or node.this.key == "star":
            self.place(node).refuse("* stands alone only: SELECT * FROM …")
        known = self._columns.get(name)
        if known is None:
            close = get_close_matches(name, self._columns, 1)
            meant = f" Did you mean {close[0]}?" if close else ""
            self.place(node).refuse(f"there is no column {name}.{meant} There are {', '.join(self._columns)}")
        field, column_type = known
        return TypedCode(py.column(field), column_type)

    def _literal(self, node: Any) -> TypedCode:
        if node.is_string:
            return TypedCode(py.literal(node.this), ColumnType("text", nullable=False))
        text = node.this
        if text.isdigit():
            if int(text) >= 2**63:
                self.place(node).refuse(f"{text} has more than 64 bits")
            return TypedCode(py.literal(int(text)), ColumnType("int", nullable=False))
        return TypedCode(py.literal(float(text)), ColumnType("float", nullable=False))

    def _boolean(self, node: Any) -> TypedCode:
        return TypedCode(py.literal(bool(node.this)), ColumnType("bool", nullable=False))

    def _null(self, node: Any) -> TypedCode:
        return TypedCode(py.value(None), None)

    def _interval(self, node: Any) -> TypedCode:
        return TypedCode(py.literal(self.span(node)), ColumnType("span", nullable=False))

    def span(self, node: Any) -> timedelta:
        """Return the length of an INTERVAL."""
        unit = str(node.args.get("unit") or "").upper().removesuffix("S")
        if node.key != "interval" or unit not in UNITS or node.this is None or node.this.key != "literal":
            self.place(node).refuse(f"write INTERVAL '5' MINUTE, with {', '.join(UNITS)}")
        try:
            seconds = float(node.this.this) * UNITS[unit]
            return timedelta(seconds=seconds)
        except (ValueError, OverflowError):
            self.place(node).refuse(f"INTERVAL '{node.this.this}' {unit} is no length of time")

    def _time_literal(self, node: Any) -> TypedCode | None:
        """Return a text literal that is cast to TIMESTAMP as a time; None for another node."""
        if node.this.key != "literal" or not node.this.is_string:
            return None
        try:
            time = datetime.fromisoformat(node.this.this)
        except ValueError:
            self.place(node).refuse(f"{node.this.this!r} is no time: write TIMESTAMP '2026-01-31 08:00:00'")
        if time.tzinfo is not None:
            self.place(node).refuse("times are UTC and are written without a zone")
        return TypedCode(py.literal(time), ColumnType("time", nullable=False))

    # ---- operators

    def _paren(self, node: Any) -> TypedCode:
        return self.translate(node.this)

    def _negative(self, node: Any) -> TypedCode:
        inner = self._number(node.this)
        return TypedCode(ast.UnaryOp(ast.USub(), inner.code), inner.type)

    def _comparison(self, node: Any, operator: str) -> TypedCode:
        left, right = self._pair(node)
        nullable = left.nullable or right.nullable
        return TypedCode(py.binary(left.code, operator, right.code), ColumnType("bool", nullable))

    def _pair(self, node: Any, first: Any = None, second: Any = None) -> tuple[TypedCode, TypedCode]:
        """Translate two values that are compared."""
        left, right = self.translate(first or node.this), self.translate(second or node.expression)
        for side in (left, right):
            if side.type is None:
                self.place(node).refuse("a comparison with NULL is NULL: write IS NULL or IS NOT NULL")
        assert left.type is not None
        assert right.type is not None
        same = left.type.name == right.type.name or (left.type.name in NUMBERS and right.type.name in NUMBERS)
        if not same:
            self.place(node).refuse(f"{left.type} and {right.type} cannot be compared: {node.sql()[:60]}")
        return left, right

    def _arithmetic(self, node: Any, operator: str) -> TypedCode:
        left, right = self.translate(node.this), self.translate(node.expression)
        if left.type is None or right.type is None:
            self.place(node).refuse("a calculation with NULL is NULL")
        nullable = left.nullable or right.nullable
        kinds = (left.type.name, right.type.name)
        if kinds[0] in NUMBERS and kinds[1] in NUMBERS:
            result: TypeName = "float" if "float" in kinds else "int"
        elif (operator, *kinds) in _TIME_ARITHMETIC:
            result = _TIME_ARITHMETIC[operator, *kinds]
        else:
            self.place(node).refuse(f"{operator} does not work on {left.type} and {right.type}: {node.sql()[:60]}")
        return TypedCode(py.binary(left.code, operator, right.code), ColumnType(result, nullable))

    def _division(self, node: Any) -> TypedCode:
        """Translate a division: of floats also for whole numbers, and NULL where the divisor is 0."""
        left, right = self._number(node.this), self._number(node.expression)
        code = py.binary(left.code, "/", right.code)
        if _is_nonzero(node.expression):
            return TypedCode(code, ColumnType("float", left.nullable or right.nullable))
        guarded = py.when(py.binary(right.code, "!=", py.literal(0)), code, py.value(None))
        return TypedCode(guarded, ColumnType("float"))

    def _remainder(self, node: Any) -> TypedCode:
        """Translate a remainder: it has the sign of the dividend, and is NULL where the divisor is 0."""
        left, right = self._number(node.this), self._number(node.expression)
        assert left.type is not None
        assert right.type is not None
        size = py.binary(py.method(left.code, "abs"), "%", py.method(right.code, "abs"))
        signed = py.when(py.binary(left.code, "<", py.literal(0)), ast.UnaryOp(ast.USub(), size), size)
        kind: TypeName = "float" if "float" in (left.type.name, right.type.name) else "int"
        nonzero = py.binary(right.code, "!=", py.literal(0))
        safe = py.binary(nonzero, "&", py.method(left.code, "is_not_null"))
        return TypedCode(py.when(safe, signed, py.value(None)), ColumnType(kind))

    def _and_or(self, node: Any) -> TypedCode:
        left, right = self._of_type(node.this, "bool"), self._of_type(node.expression, "bool")
        code = py.binary(left.code, "&" if node.key == "and" else "|", right.code)
        return TypedCode(code, ColumnType("bool", left.nullable or right.nullable))

    def _not(self, node: Any) -> TypedCode:
        inner = self._of_type(node.this, "bool")
        return TypedCode(ast.UnaryOp(ast.Invert(), inner.code), inner.type)

    def _is(self, node: Any) -> TypedCode:
        if node.expression.key != "null":
            self.place(node).refuse("IS is for NULL only: write IS NULL or IS NOT NULL")
        inner = self.translate(node.this)
        return TypedCode(py.method(inner.code, "is_null"), ColumnType("bool", nullable=False))

    def _between(self, node: Any) -> TypedCode:
        low_value, low = self._pair(node, node.this, node.args["low"])
        _, high = self._pair(node, node.this, node.args["high"])
        both = py.binary(py.binary(low_value.code, ">=", low.code), "&", py.binary(low_value.code, "<=", high.code))
        return TypedCode(both, ColumnType("bool", low_value.nullable or low.nullable or high.nullable))

    def _in(self, node: Any) -> TypedCode:
        if node.args.get("query") or not node.expressions:
            self.place(node).refuse("IN takes a list of constants: x IN (1, 2)")
        tests = [self._pair(node, node.this, item) for item in node.expressions]
        code = py.binary(tests[0][0].code, "==", tests[0][1].code)
        for left, right in tests[1:]:
            code = py.binary(code, "|", py.binary(left.code, "==", right.code))
        return TypedCode(code, ColumnType("bool", any(left.nullable or right.nullable for left, right in tests)))

    def _like(self, node: Any) -> TypedCode:
        inner = self._of_type(node.this, "text")
        pattern = node.expression
        text = pattern.this if pattern.key == "literal" and pattern.is_string else None
        middle = None if text is None else text.strip("%")
        if text is None or "%" in (middle or "") or "_" in text or "\\" in text:
            self.place(node).refuse("LIKE takes a constant with % at its ends only: 'a%', '%a', '%a%'")
        before, after = text.startswith("%"), text.endswith("%") and text != "%"
        if before and (after or text == "%"):
            code = py.method(inner.code, "contains", py.value(middle))
        elif before:
            code = py.method(inner.code, "ends_with", py.value(middle))
        elif after:
            code = py.method(inner.code, "starts_with", py.value(middle))
        else:
            code = py.binary(inner.code, "==", py.literal(text))
        if node.args.get("negate"):
            code = ast.UnaryOp(ast.Invert(), code)
        return TypedCode(code, ColumnType("bool", inner.nullable))

    def _concat(self, node: Any) -> TypedCode:
        left, right = self._of_type(node.this, "text"), self._of_type(node.expression, "text")
        return TypedCode(py.binary(left.code, "+", right.code), ColumnType("text", left.nullable or right.nullable))

    # ---- choices

    def _case(self, node: Any) -> TypedCode:
        branches = [
            (self._case_condition(node, branch.this), self.translate(branch.args["true"]))
            for branch in node.args["ifs"]
        ]
        default = node.args.get("default")
        otherwise = TypedCode(py.value(None), None) if default is None else self.translate(default)
        column_type = self._common(node, [*(then for _, then in branches), otherwise])
        code = otherwise.code
        for condition, then in reversed(branches):
            code = py.when(condition, then.code, code)
        return TypedCode(code, column_type)

    def _case_condition(self, node: Any, condition: Any) -> ast.expr:
        if node.this is None:
            return self.condition(condition)
        left, right = self._pair(node, node.this, condition)
        return py.binary(left.code, "==", right.code)

    def _coalesce(self, node: Any) -> TypedCode:
        parts = [self.translate(part) for part in (node.this, *node.expressions)]
        column_type = self._common(node, parts)
        certain = next((number for number, part in enumerate(parts) if not part.nullable), len(parts) - 1)
        parts = parts[: certain + 1]  # those behind a value that is never NULL are never taken
        code = parts[-1].code
        for part in reversed(parts[:-1]):
            code = py.method(part.code, "fill_null", code)
        return TypedCode(code, ColumnType(column_type.name, all(part.nullable for part in parts)))

    def _null_if(self, node: Any) -> TypedCode:
        left, right = self._pair(node)
        assert left.type is not None
        code = py.when(py.binary(left.code, "==", right.code), py.value(None), left.code)
        return TypedCode(code, ColumnType(left.type.name))

    def _common(self, node: Any, parts: list[TypedCode]) -> ColumnType:
        """Return the type of a value that may come from several expressions."""
        names = {part.type.name for part in parts if part.type is not None}
        nullable = any(part.nullable for part in parts)
        if len(names) == 1:
            return ColumnType(names.pop(), nullable)
        if not names or not names <= set(NUMBERS):
            described = " and ".join(sorted(name.upper() for name in names)) or "only NULL"
            self.place(node).refuse(f"the values of {node.key.upper()} have no common type: {described}")
        return ColumnType("float", nullable)

    # ---- functions

    def _absolute(self, node: Any) -> TypedCode:
        inner = self._number(node.this)
        return TypedCode(py.method(inner.code, "abs"), inner.type)

    def _round(self, node: Any) -> TypedCode:
        inner, digits = self._number(node.this), node.args.get("decimals")
        if digits is None:
            return TypedCode(_rounded(inner.code), ColumnType("int", inner.nullable))
        if digits.key != "literal" or not str(digits.this).isdigit():
            self.place(node).refuse("ROUND takes a constant number of digits")
        return TypedCode(py.method(inner.code, "round", py.value(int(digits.this))), inner.type)

    def _root(self, node: Any) -> TypedCode:
        """Translate a root; that of a number below zero is NULL."""
        inner = self._number(node.this)
        valid = py.binary(inner.code, ">=", py.literal(0))
        return TypedCode(py.when(valid, py.method(inner.code, "sqrt"), py.value(None)), ColumnType("float"))

    def _length(self, node: Any) -> TypedCode:
        inner = self._of_type(node.this, "text")
        return TypedCode(py.method(inner.code, "length"), ColumnType("int", inner.nullable))

    def _cast(self, node: Any) -> TypedCode:
        wanted = node.args["to"].this.name
        if wanted in ("TIMESTAMP", "DATETIME") and (time := self._time_literal(node)) is not None:
            return time
        if wanted not in _CASTS:
            self.place(node).refuse(f"CAST to {wanted} is not supported: {', '.join(_CASTS)} are")
        inner, name = self.translate(node.this), _CASTS[wanted]
        if inner.type is None:
            self.place(node).refuse("CAST of NULL is NULL")
        if inner.type.name == name:
            return inner
        if inner.type.name == "float" and name == "int":
            return TypedCode(py.method(inner.code, "round"), ColumnType("int", inner.nullable))
        if inner.type.name not in (*NUMBERS, "text", "bool") or "bool" in (name, inner.type.name):
            self.place(node).refuse(f"{inner.type} cannot be cast to {wanted}")
        python_type = py.name({"int": "int", "float": "float", "text": "str"}[name])
        return TypedCode(py.method(inner.code, "cast", python_type), ColumnType(name, inner.nullable))

    def _extract(self, node: Any) -> TypedCode:
        part = str(node.this).upper() if node.key == "extract" else node.key.upper()
        inner = self._of_type(node.expression if node.key == "extract" else node.this, "time")
        if part not in _PARTS:
            self.place(node).refuse(f"EXTRACT takes {', '.join(sorted(_PARTS))}, not {part}")
        return TypedCode(py.method(inner.code, part.lower()), ColumnType("int", inner.nullable))

    def _truncated(self, node: Any) -> TypedCode:
        unit = str(node.args.get("unit") or "").strip("'").upper()
        if unit not in ("SECOND", "MINUTE", "HOUR", "DAY"):
            self.place(node).refuse("DATE_TRUNC takes 'second', 'minute', 'hour' or 'day'")
        inner = self._of_type(node.this, "time")
        length = py.value(timedelta(seconds=UNITS[unit]))
        return TypedCode(py.method(inner.code, "truncate", length), ColumnType("time", inner.nullable))

    # ---- types

    def _number(self, node: Any) -> TypedCode:
        inner = self.translate(node)
        if inner.type is None or inner.type.name not in NUMBERS:
            self.place(node).refuse(f"a number is needed, and {node.sql()[:60]} is {inner.type or 'NULL'}")
        return inner

    def _of_type(self, node: Any, wanted: TypeName) -> TypedCode:
        inner = self.translate(node)
        if inner.type is None or inner.type.name != wanted:
            needed = {"bool": "a condition", "text": "a text", "time": "a time"}.get(wanted, wanted)
            self.place(node).refuse(f"{needed} is needed, and {node.sql()[:60]} is {inner.type or 'NULL'}")
        return inner


def _rounded(number: ast.expr) -> ast.expr:
    """Return a number as the nearest whole one; a half goes away from zero, as in SQL."""
    low = py.method(number, "floor")
    is_up = py.binary(py.binary(number, "-", low), ">=", py.literal(0.5))
    below = py.binary(py.binary(number, "-", low), ">", py.literal(0.5))
    up = py.when(
        py.binary(number, ">=", py.literal(0)),
        py.when(is_up, py.literal(1), py.literal(0)),
        py.when(below, py.literal(1), py.literal(0)),
    )
    return py.binary(low, "+", up)


def _is_nonzero(node: Any) -> bool:
    """Return whether a divisor is a constant other than 0."""
    return node.key == "literal" and not node.is_string and float(node.this) != 0


_OTHER_KINDS: Final = frozenset({*_COMPARISONS, *_ARITHMETIC, *_TEXT_CALLS, *_ROUNDING})
_TWO_PARTS: Final = frozenset({"this", "expression"})
_PARTS_OF: Final[dict[str, frozenset[str]]] = {
    "between": frozenset({"this", "low", "high"}),
    "case": frozenset({"this", "ifs", "default"}),
    "cast": frozenset({"this", "to"}),
    "coalesce": frozenset({"this", "expressions"}),
    "column": frozenset({"this", "table"}),
    "datetrunc": frozenset({"this", "unit"}),
    "dpipe": frozenset({"this", "expression", "safe"}),
    "in": frozenset({"this", "expressions", "query"}),
    "interval": frozenset({"this", "unit"}),
    "like": frozenset({"this", "expression", "negate"}),
    "literal": frozenset({"this", "is_string"}),
    "round": frozenset({"this", "decimals"}),
    "timestamptrunc": frozenset({"this", "unit"}),
    "trim": frozenset({"this"}),
}
"""Form → the parts of its syntax tree that are translated; of other forms `_TWO_PARTS`."""

_TIME_ARITHMETIC: Final[dict[tuple[str, str, str], TypeName]] = {
    ("+", "time", "span"): "time",
    ("-", "time", "span"): "time",
    ("-", "time", "time"): "span",
    ("+", "span", "span"): "span",
    ("-", "span", "span"): "span",
}

SUPPORTED: Final = (
    "arithmetic and comparisons",
    *("AND", "OR", "NOT", "IS NULL", "BETWEEN", "IN", "LIKE", "||", "CASE", "COALESCE", "NULLIF", "CAST"),
    *("ABS", "ROUND", "FLOOR", "CEIL", "SQRT", "LOWER", "UPPER", "TRIM", "LENGTH", "EXTRACT", "DATE_TRUNC"),
)
