"""Random expressions over random rows: generated Python text, NumPy and a slow walk over the tree agree to the last bit."""

from collections.abc import Callable
from datetime import datetime, timedelta
from math import copysign, inf, isnan
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.expressions.binding import bound
from agiledart_dataflow.expressions.expression import Expression, col, lit, maximum, minimum, when
from agiledart_dataflow.expressions.nodes import Typed
from agiledart_dataflow.expressions.python_text import PythonText, Scope
from agiledart_dataflow.expressions.vectors import column_of_expression, mask_of_expression
from agiledart_dataflow.user_code.callsite import CallSite
from tests.reference.expressions import parts_of, value_of

HERE = CallSite("here.py", 1)


class Row(NamedTuple):
    """A field of each kind, and one that may be missing."""

    i: int
    j: int | None
    f: float
    g: float | None
    b: bool
    c: bool | None
    s: str
    t: str | None
    at: datetime
    to: datetime | None
    d: timedelta
    e: timedelta | None


FIELDS = {"int": "ij", "float": "fg", "bool": "bc", "text": "st", "time": ("at", "to"), "span": "de"}
ints = st.integers(-9, 9) | st.sampled_from([2**53 + 1, 2**62, -(2**63), 2**63 - 1, 10**9])
floats = st.floats(-100, 100) | st.sampled_from([0.0, -0.0, 0.1, 2.5, 1e300, inf, -inf, float("nan"), 9.3e18])
texts = st.text(st.sampled_from(" abAB1.\tßİé\x1f"), max_size=5)
first, last = datetime.fromisoformat("1960-01-01"), datetime.fromisoformat("2100-01-01")
ends = [datetime.fromisoformat("0001-01-01"), datetime.fromisoformat("9999-12-31 23:59:59.999999")]
times = st.datetimes(first, last) | st.sampled_from(ends)
spans = st.timedeltas(timedelta(days=-400), timedelta(days=400)) | st.just(timedelta(days=10**8))
rows = st.lists(
    st.builds(
        Row,
        *(one for kind in (ints, floats, st.booleans(), texts, times, spans) for one in (kind, st.none() | kind)),
    ),
    max_size=6,
)
LITERALS = {
    "int": st.integers(-3, 3) | ints,
    "float": floats,
    "bool": st.booleans(),
    "text": texts,
    "time": times,
    "span": spans,
}


COMPARES: list[Callable[[Any], Any]] = [
    lambda a: a[0] == a[1], lambda a: a[0] != a[1], lambda a: a[0] < a[1], lambda a: a[0] <= a[1], lambda a: a[0] > a[1],
    lambda a: a[0] >= a[1],
]  # fmt: skip


def _pair(kind: str, depth: int) -> st.SearchStrategy[Any]:
    return st.tuples(expressions(kind, depth), expressions(kind, depth))


def _number(depth: int) -> st.SearchStrategy[Any]:
    return expressions("int", depth) | expressions("float", depth)


def _made(makers: list[tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]]]) -> st.SearchStrategy[Any]:
    return st.one_of([st.builds(make, *parts) for make, parts in makers])


def _arithmetic(kind: str, depth: int) -> list[tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]]]:
    other = (
        expressions("int", depth)
        if kind == "int"
        else st.one_of(expressions("int", depth), expressions("float", depth))
    )
    two = (expressions(kind, depth), other)
    return [
        (lambda a, b: a + b, two),
        (lambda a, b: b - a, two),
        (lambda a, b: a * b, two),
        (lambda a, b: b // a, two),
        (lambda a, b: a % b, two),
        (lambda a: -a, two[:1]),
        (abs, two[:1]),
    ]


def _of_kind(kind: str, depth: int) -> list[tuple[Callable[..., Any], tuple[st.SearchStrategy[Any], ...]]]:
    """Functions that give this kind."""
    whole, real = expressions("int", depth), expressions("float", depth)
    truth, text = expressions("bool", depth), expressions("text", depth)
    time, span = expressions("time", depth), expressions("span", depth)
    number = _number(depth)
    if kind == "int":
        return [
            *_arithmetic(kind, depth),
            *[(lambda a, name=name: getattr(a, name)(), (time,)) for name in (
                "year", "month", "day", "weekday", "hour", "minute", "second", "millisecond",
            )],
            *[(lambda a, name=name: getattr(a, name)(), (number,)) for name in ("round", "floor", "ceil")],
            (lambda a: a.cast(int), (number | truth,)),
            (lambda a: a.length(), (text,)),
        ]  # fmt: skip
    if kind == "float":
        return [
            *_arithmetic(kind, depth),
            (lambda a, b: a / b, (number, number)),
            (lambda a: a.sqrt(), (number,)),
            (lambda a: a.cast(float), (whole | truth,)),
            (lambda a, digits: a.round(digits), (real, st.integers(0, 3))),
            (lambda a: a.total_seconds(), (span,)),
        ]
    if kind == "bool":
        sides = st.one_of([_pair(one, depth) for one in ("int", "float", "text", "time", "span")])
        sides = sides | st.tuples(whole, real)
        return [
            *[(compare, (sides,)) for compare in COMPARES],
            (lambda a, b: a & b, (truth, truth)),
            (lambda a, b: a | b, (truth, truth)),
            (lambda a: ~a, (truth,)),
            (lambda a: a.is_null(), (st.one_of([expressions(one, depth) for one in FIELDS]),)),
            (lambda a, b: a.is_in(b), (whole, st.lists(st.integers(-3, 3), max_size=3))),
            (lambda a, b: a.is_in(b), (text, st.lists(texts, max_size=3))),
            (lambda a, b: a.contains(b), (text, texts | text)),
            (lambda a, b: a.starts_with(b), (text, texts)),
            (lambda a, b: a.ends_with(b), (text, texts)),
            (lambda a: a.cast(bool), (number,)),
        ]
    if kind == "text":
        return [
            *[(lambda a, name=name: getattr(a, name)(), (text,)) for name in ("lower", "upper", "strip")],
            (lambda a, b: a + b, (text, text)),
            (lambda a, b, c: a.replace(b, c), (text, texts, texts)),
            (lambda a, b, c: a.slice(b, c), (text, st.integers(-3, 3), st.none() | st.integers(-3, 4))),
            (lambda a: a.cast(str), (number | truth,)),
        ]
    if kind == "time":
        return [
            (lambda a, b: a + b, (time, span)),
            (lambda a, b: a - b, (time, span)),
            (lambda a, b: a.truncate(b), (time, st.sampled_from([timedelta(minutes=7), timedelta(days=1)]))),
        ]
    return [
        (lambda a, b: a - b, (time, time)),
        (lambda a, b: a + b, (span, span)),
        (lambda a: -a, (span,)),
    ]


def expressions(kind: str, depth: int) -> st.SearchStrategy[Any]:
    """Expressions of a kind, at most so many functions deep."""
    leaf = st.sampled_from(FIELDS[kind]).map(col) | LITERALS[kind].map(lit)
    if depth <= 0:
        return leaf
    return st.deferred(lambda: leaf | _made(_of_kind(kind, depth - 1)) | _general(kind, depth - 1))


def _general(kind: str, depth: int) -> st.SearchStrategy[Any]:
    """Functions that work for every kind."""
    same = expressions(kind, depth)
    truth = expressions("bool", depth)
    return _made(
        [
            (lambda a, b: a.fill_null(b), (same, same)),
            (minimum, (same, same)),
            (maximum, (same, same, same)),
            (lambda c, a, b: when(c).then(a).otherwise(b), (truth, same, same | st.none())),
            (lambda c, a, d, b, e: when(c).then(a).when(d).then(b).otherwise(e), (truth, same, truth, same, same)),
        ]
    )


def row_function(typed: Typed) -> Callable[[Any], Any]:
    """The expression as a function of a row."""
    names = Scope()
    text = PythonText(lambda name: f"row.{name}", names).of(typed)
    function: Callable[[Any], Any] = eval(f"lambda row: {text}", names.values)
    return function


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit and of one type."""
    if isinstance(one, float) and isinstance(other, float):
        return (isnan(one) and isnan(other)) or (one == other and copysign(1, one) == copysign(1, other))
    return type(one) is type(other) and one == other


def outcome(function: Callable[[Any], Any], row: Any) -> tuple[Any, type | None]:
    """(value, None) or (None, type of the error)."""
    try:
        return function(row), None
    except (ArithmeticError, ValueError, TypeError) as error:
        return None, type(error)


def check(expression: Expression, table: list[Row]) -> None:
    """All three ways give the same."""
    typed = bound(expression.node, Row, HERE)
    wanted = [outcome(lambda row: value_of(typed, row), row) for row in table]
    got = [outcome(row_function(typed), row) for row in table]
    assert all(same(a, b) and x == y for (a, x), (b, y) in zip(wanted, got, strict=True))
    columns = Columns.from_rows(table, Row)
    try:
        values = column_of_expression(typed, columns).to_list()
    except (ArithmeticError, ValueError, TypeError):
        # a part raises for some row, though that row may not need it: then rows are asked, and say
        parts = list(parts_of(typed))
        assert any(outcome(lambda row, part=part: value_of(part, row), row)[1] for part in parts for row in table)
        return
    assert all(problem is None for _, problem in wanted)
    assert len(values) == len(table)
    assert all(same(a, b) for (a, _), b in zip(wanted, values, strict=True)), (wanted, values)
    if typed.type.kind == "bool":
        assert mask_of_expression(typed, columns).tolist() == [value is True for value, _ in wanted]


@settings(deadline=None, max_examples=200)
@given(st.one_of([expressions(kind, 2) for kind in FIELDS]), rows)
def test_text_vectors_and_the_tree_agree(expression: Expression, table: list[Row]) -> None:
    check(expression, table)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from([*FIELDS]).flatmap(lambda kind: _made(_of_kind(kind, 0))), rows.filter(len))
def test_each_function_agrees(expression: Expression, table: list[Row]) -> None:
    check(expression, table)
