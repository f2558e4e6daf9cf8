"""Python code as syntax trees: names and values of users become nodes, never text, so none of them can become code."""

import ast
from datetime import datetime, timedelta
from typing import Any


def name(identifier: str) -> ast.expr:
    """Return a variable."""
    return ast.Name(identifier, ast.Load())


def value(given: Any) -> ast.expr:
    """Return a constant: a number, a text, a truth value, None, a time, a span, or a list or dict of such."""
    if isinstance(given, timedelta):
        parts = {"days": given.days, "seconds": given.seconds, "microseconds": given.microseconds}
        return call(name("timedelta"), **{part: value(number) for part, number in parts.items() if number})
    if isinstance(given, datetime):
        return call(attribute(name("datetime"), "fromisoformat"), value(given.isoformat()))
    if isinstance(given, list | tuple):
        return ast.List([value(item) for item in given], ast.Load())
    if isinstance(given, dict):
        return ast.Dict([value(key) for key in given], [value(item) for item in given.values()])
    if isinstance(given, float) and given in (float("inf"), float("-inf")):
        return call(name("float"), value("inf" if given > 0 else "-inf"))
    if isinstance(given, int | float) and not isinstance(given, bool) and given < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-given))
    return ast.Constant(given)


def attribute(owner: ast.expr, identifier: str) -> ast.expr:
    """Return `owner.identifier`."""
    return ast.Attribute(owner, identifier, ast.Load())


def call(function: ast.expr, *arguments: ast.expr, **named: ast.expr) -> ast.expr:
    """Return a call."""
    return ast.Call(function, list(arguments), [ast.keyword(key, argument) for key, argument in named.items()])


def method(owner: ast.expr, identifier: str, *arguments: ast.expr, **named: ast.expr) -> ast.expr:
    """Return the call of a method."""
    return call(attribute(owner, identifier), *arguments, **named)


def assign(identifier: str, code: ast.expr) -> ast.stmt:
    """Return `identifier = code`."""
    return ast.Assign([ast.Name(identifier, ast.Store())], code, lineno=0)


def column(identifier: str) -> ast.expr:
    """Return `col("identifier")`."""
    return call(name("col"), value(identifier))


def is_column(code: ast.expr, identifier: str) -> bool:
    """Return whether code is `col("identifier")`."""
    return ast.dump(code) == ast.dump(column(identifier))


def literal(given: Any) -> ast.expr:
    """Return `lit(value)`."""
    return call(name("lit"), value(given))


def binary(left: ast.expr, operator: str, right: ast.expr) -> ast.expr:
    """Return a binary operation or comparison of expressions."""
    if operator in _COMPARISONS:
        return ast.Compare(left, [_COMPARISONS[operator]()], [right])
    return ast.BinOp(left, _OPERATORS[operator](), right)


def when(condition: ast.expr, then: ast.expr, otherwise: ast.expr) -> ast.expr:
    """Return `when(condition).then(then).otherwise(otherwise)`."""
    return method(method(call(name("when"), condition), "then", then), "otherwise", otherwise)


_COMPARISONS: dict[str, type[ast.cmpop]] = {
    "==": ast.Eq,
    "!=": ast.NotEq,
    "<": ast.Lt,
    "<=": ast.LtE,
    ">": ast.Gt,
    ">=": ast.GtE,
}
_OPERATORS: dict[str, type[ast.operator]] = {
    "+": ast.Add,
    "-": ast.Sub,
    "*": ast.Mult,
    "/": ast.Div,
    "%": ast.Mod,
    "&": ast.BitAnd,
    "|": ast.BitOr,
}
