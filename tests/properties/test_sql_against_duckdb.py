"""SQL means what DuckDB means by it: random queries over random rows, NULL included, give the same results."""

import tempfile
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import isclose
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agiledart import records
from tests.unit.executor.query_files.loading import rows_of

duckdb = pytest.importorskip("duckdb", reason="no DuckDB here: pip install duckdb")
pytest.importorskip("sqlglot", reason="no sqlglot here: pip install 'agiledart[query]'")

START = datetime(2026, 1, 1)  # noqa: DTZ001  times of rows are UTC without a zone
COLUMNS = "ts TIMESTAMP, k TEXT NOT NULL, a BIGINT, b DOUBLE, s TEXT, ok BOOLEAN"
DECLARED = f"CREATE STREAM t ({COLUMNS}) WITH (source='null:', event_time='ts');"
PAIR = DECLARED + f"CREATE STREAM u ({COLUMNS}) WITH (source='null:', event_time='ts');"


class Row(NamedTuple):
    """Row of the tables."""

    ts: datetime
    k: str
    a: int | None
    b: float | None
    s: str | None
    ok: bool | None


def tables(least: int = 0) -> st.SearchStrategy[list[Row]]:
    """Rows in order of time."""
    row = st.tuples(
        st.integers(0, 40),
        st.sampled_from("xyz"),
        st.none() | st.integers(-20, 20),
        st.none() | st.integers(-40, 40).map(lambda n: n / 4),
        st.none() | st.sampled_from(["", "a", "Ab", "b a", "ab%"]),
        st.none() | st.booleans(),
    )
    made = st.lists(row, min_size=least, max_size=14)
    return made.map(
        lambda rows: [Row(START + timedelta(seconds=at), *rest) for at, *rest in sorted(rows, key=lambda r: r[0])]
    )


def numbers(depth: int) -> st.SearchStrategy[str]:
    """Expressions of numbers."""
    leaf = st.sampled_from(["a", "b", "a", "b", "3", "2.5", "0", "-1"])
    if depth == 0:
        return leaf
    inner = numbers(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(inner, inner).map(lambda p: f"({p[0]} / NULLIF({p[1]}, 0))"),
        st.tuples(st.sampled_from(["a", "7", "-7"]), st.sampled_from(["a", "3", "-3"])).map(
            lambda p: f"({p[0]} % NULLIF({p[1]}, 0))"
        ),
        inner.map(lambda e: f"ABS({e})"),
        st.sampled_from(["FLOOR(b)", "CEIL(b)", "ROUND(b)", "CAST(b AS BIGINT)", "LENGTH(s)", "SQRT(ABS(b))", "-a"]),
        st.tuples(inner, inner).map(lambda p: f"COALESCE({p[0]}, {p[1]})"),
        st.tuples(conditions(depth - 1), inner, inner).map(lambda p: f"CASE WHEN {p[0]} THEN {p[1]} ELSE {p[2]} END"),
        st.tuples(inner, inner).map(lambda p: f"CASE {p[0]} WHEN 3 THEN {p[1]} WHEN 0 THEN 1 END"),
        st.sampled_from(["EXTRACT(SECOND FROM ts)", "EXTRACT(MINUTE FROM ts)", "EXTRACT(DAY FROM ts)"]),
    )


def texts(depth: int) -> st.SearchStrategy[str]:
    """Expressions of texts."""
    leaf = st.sampled_from(["s", "k", "'a'", "''"])
    if depth == 0:
        return leaf
    inner = texts(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(inner, inner).map(lambda p: f"({p[0]} || {p[1]})"),
        st.tuples(st.sampled_from(["LOWER", "UPPER", "TRIM"]), inner).map(lambda p: f"{p[0]}({p[1]})"),
        st.tuples(inner, inner).map(lambda p: f"COALESCE({p[0]}, {p[1]})"),
        st.just("CAST(a AS TEXT)"),
    )


def conditions(depth: int) -> st.SearchStrategy[str]:
    """Conditions."""
    leaf = st.sampled_from(
        ["ok", "a > 3", "b IS NULL", "s = 'a'", "TRUE", "a IN (1, 2, 3)", "s LIKE 'a%'", "s NOT LIKE '%b'"]
    )
    if depth == 0:
        return leaf
    inner, compare = conditions(depth - 1), st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    return st.one_of(
        leaf,
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda e: f"NOT ({e})"),
        st.tuples(numbers(depth - 1), compare, numbers(depth - 1)).map(lambda p: f"{p[0]} {p[1]} {p[2]}"),
        st.tuples(texts(depth - 1), compare, texts(depth - 1)).map(lambda p: f"{p[0]} {p[1]} {p[2]}"),
        st.tuples(numbers(depth - 1), numbers(0), numbers(0)).map(lambda p: f"{p[0]} BETWEEN {p[1]} AND {p[2]}"),
        st.tuples(numbers(depth - 1), st.sampled_from(["", "NOT "])).map(lambda p: f"{p[0]} IS {p[1]}NULL"),
        st.just("ts >= TIMESTAMP '2026-01-01 00:00:10'"),
    )


AGGREGATES = st.one_of(
    st.just("COUNT(*)"),
    st.tuples(st.sampled_from(["COUNT", "SUM", "AVG", "MIN", "MAX"]), numbers(1)).map(lambda p: f"{p[0]}({p[1]})"),
    st.sampled_from(["COUNT(s)", "SUM(a) + COUNT(b)", "MAX(a) - MIN(a)", "MAX(EXTRACT(SECOND FROM ts))"]),
)


def reference(query: str, **given_rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """DuckDB's results."""
    with duckdb.connect() as database:
        database.execute("SET threads = 1")
        for name, rows in given_rows.items():
            database.execute(f"CREATE TABLE {name} ({COLUMNS})")
            if rows:
                database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?)", [list(row) for row in rows])
        return [tuple(row) for row in database.execute(query).fetchall()]


def assert_equal(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """The same rows in any order; floats to 1e-9."""

    def order(row: tuple[Any, ...]) -> str:
        return repr(
            [round(float(v), 6) + 0.0 if isinstance(v, int | float) and not isinstance(v, bool) else v for v in row]
        )

    found, expected = sorted(map(tuple, found), key=order), sorted(map(tuple, expected), key=order)
    assert len(found) == len(expected), (found, expected)
    for row, wanted in zip(found, expected, strict=True):
        for value, right in zip(row, wanted, strict=True):
            is_number = isinstance(right, int | float) and not isinstance(right, bool) and value is not None
            assert value == right or (is_number and isclose(value, right, rel_tol=1e-9, abs_tol=1e-9)), (row, wanted)


def results(text: str, **inputs: Sequence[Row]) -> list[Any]:
    """Our results."""
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {name: records(list(rows), row_type=Row) for name, rows in inputs.items()}
        return rows_of(Path(folder), text, **given)


CHECKED = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


def seconds_of_duckdb(text: str) -> str:
    """DuckDB's text of a query: seconds are whole here, and quotients of decimals are of doubles there."""
    return text.replace("2.5", "CAST(2.5 AS DOUBLE)")


@CHECKED
@given(tables(), numbers(3), texts(2), conditions(2), conditions(2))
def test_columns_and_conditions(rows: list[Row], number: str, text: str, condition: str, shown: str) -> None:
    query = f"SELECT k, {number} AS n, {text} AS t, {shown} AS c FROM t WHERE {condition}"
    assert_equal(results(DECLARED + query, t=rows), reference(seconds_of_duckdb(query), t=rows))


@CHECKED
@given(
    tables(), AGGREGATES, AGGREGATES, conditions(1), st.sampled_from(["COUNT(*) > 1", "SUM(a) > 0", "MIN(b) IS NULL"])
)
def test_tumbling_windows(rows: list[Row], first: str, second: str, condition: str, having: str) -> None:
    shown = f"{first} AS x, {second} AS y"
    query = f"SELECT k, window_start, {shown} FROM TUMBLE(t, ts, INTERVAL '10' SECOND) WHERE {condition} GROUP BY k HAVING {having}"
    same = (
        f"SELECT k, epoch_ms(ts) // 10000 * 10000 AS w, {shown} FROM t WHERE {condition} GROUP BY k, w HAVING {having}"
    )
    assert_equal(results(DECLARED + query, t=rows), reference(seconds_of_duckdb(same), t=rows))


@CHECKED
@given(tables(), AGGREGATES, st.sampled_from(["ok", "a % 2", "s"]))
def test_hopping_windows_by_expressions(rows: list[Row], aggregate: str, key: str) -> None:
    query = (
        f"SELECT {key} AS g, window_end, {aggregate} AS x"
        f" FROM HOP(t, ts, INTERVAL '5' SECOND, INTERVAL '15' SECOND) GROUP BY {key}, window_end"
    )
    same = (
        f"SELECT {key} AS g, epoch_ms(ts) // 5000 * 5000 - 5000 * h.n + 15000 AS w, {aggregate} AS x"
        f" FROM t, range(3) AS h(n) GROUP BY g, w"
    )
    assert_equal(results(DECLARED + query, t=rows), reference(seconds_of_duckdb(same), t=rows))


@CHECKED
@given(tables(), tables(), st.sampled_from(["k", "a", "s"]), conditions(1))
def test_window_joins(left: list[Row], right: list[Row], key: str, condition: str) -> None:
    query = (
        "SELECT l.k AS lk, r.a AS ra, l.b + r.b AS total FROM TUMBLE(t, ts, INTERVAL '10' SECOND) AS l"
        f" JOIN TUMBLE(u, ts, INTERVAL '10' SECOND) AS r ON l.{key} = r.{key}"
    )
    same = (
        "SELECT l.k AS lk, r.a AS ra, l.b + r.b AS total FROM t AS l JOIN u AS r"
        f" ON l.{key} = r.{key} AND epoch_ms(l.ts) // 10000 = epoch_ms(r.ts) // 10000"
    )
    assert_equal(results(PAIR + query, t=left, u=right), reference(same, t=left, u=right))
    outer, same_outer = query.replace(" JOIN ", " LEFT JOIN "), same.replace(" JOIN ", " LEFT JOIN ")
    if key == "k":
        assert_equal(results(PAIR + outer, t=left, u=right), reference(same_outer, t=left, u=right))


@CHECKED
@given(tables(), tables(), numbers(1), conditions(1))
def test_union_of_views(left: list[Row], right: list[Row], number: str, condition: str) -> None:
    union = f"SELECT k, CAST({number} AS DOUBLE) AS n FROM t WHERE {condition} UNION ALL SELECT k, b FROM u"
    query = f"CREATE VIEW v AS {union}; SELECT k, n FROM v WHERE n > 0 OR n IS NULL"
    same = f"SELECT k, n FROM ({union}) AS v WHERE n > 0 OR n IS NULL"
    assert_equal(results(PAIR + query, t=left, u=right), reference(seconds_of_duckdb(same), t=left, u=right))


@CHECKED
@given(tables(), tables(), tables(), st.sampled_from(["JOIN", "LEFT JOIN"]), conditions(1))
def test_joins_of_three_streams(
    first: list[Row], second: list[Row], third: list[Row], how: str, condition: str
) -> None:
    """WHERE stands around the join, where a column of one stream has one name."""
    shown = "l.k AS lk, l.a AS a, r.b AS b, v.s AS s, v.ok AS ok, l.ts AS ts, r.k AS k"
    window = "TUMBLE({}, ts, INTERVAL '10' SECOND)"
    joined = (
        f"SELECT {shown} FROM {window.format('t')} AS l JOIN {window.format('u')} AS r ON l.k = r.k"
        f" {how} {window.format('w')} AS v ON r.k = v.k"
    )
    same = (
        f"SELECT {shown} FROM t AS l JOIN u AS r ON l.k = r.k AND epoch_ms(l.ts) // 10000 = epoch_ms(r.ts) // 10000"
        f" {how} w AS v ON r.k = v.k AND epoch_ms(l.ts) // 10000 = epoch_ms(v.ts) // 10000"
    )
    query = "SELECT lk, a, b, s, ok, k FROM ({}) AS q WHERE " + condition
    declared = PAIR + f"CREATE STREAM w ({COLUMNS}) WITH (source='null:', event_time='ts');"
    inputs = {"t": first, "u": second, "w": third}
    found = results(declared + query.format(joined), **inputs)
    assert_equal(found, reference(seconds_of_duckdb(query.format(same)), **inputs))


@CHECKED
@given(tables(), numbers(2), conditions(1))
def test_distinct_rows_of_windows(rows: list[Row], number: str, condition: str) -> None:
    query = (
        f"WITH q AS (SELECT ts, k, {number} AS n FROM t WHERE {condition})"
        " SELECT DISTINCT k, n, window_start FROM TUMBLE(q, ts, INTERVAL '10' SECOND)"
    )
    same = f"SELECT DISTINCT k, {number} AS n, epoch_ms(ts) // 10000 * 10000 AS w FROM t WHERE {condition}"
    assert_equal(results(DECLARED + query, t=rows), reference(seconds_of_duckdb(same), t=rows))
