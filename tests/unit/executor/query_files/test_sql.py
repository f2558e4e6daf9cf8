"""SQL applications: results, and refusals at their place."""

from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import collect, records, whole_file
from agiledart.onnx_export import onnx_model
from agiledart.scoring import ModelDocument
from agiledart.testing import run_local
from agiledart_dataflow.operators.model_scorer import model_version
from tests.unit.executor.query_files.loading import fault, loaded, rows_of
from tests.unit.executor.query_files.refused_sql import REFUSED, WINDOW

pytest.importorskip("sqlglot", reason="no sqlglot here: pip install 'agiledart[query]'")


class Reading(NamedTuple):
    """Row of the tests."""

    at: datetime
    room: str
    celsius: float | None


def at(second: int) -> datetime:
    """A time."""
    return datetime(2026, 1, 1, 0, second // 60, second % 60)  # noqa: DTZ001  UTC without a zone


ROWS = [
    Reading(at(0), "attic", 20.0),
    Reading(at(10), "attic", 32.0),
    Reading(at(20), "cellar", None),
    Reading(at(30), "cellar", 12.0),
    Reading(at(90), "cellar", 11.0),
]

READINGS = """CREATE STREAM r (at TIMESTAMP, room TEXT NOT NULL, celsius DOUBLE) WITH (source='null:', event_time='at');
"""


def results(folder: Path, query: str, parallelism: int = 1) -> list[Any]:
    """Rows of a query over the readings."""
    return [tuple(row) for row in rows_of(folder, READINGS + query, parallelism=parallelism, r=records(ROWS))]


@pytest.mark.parametrize("parallelism", [1, 4])
def test_windows_leave_null_out(tmp_path: Path, parallelism: int) -> None:
    query = (
        "SELECT room, window_end, COUNT(*) AS n, COUNT(celsius) AS c, AVG(celsius) AS mean, MIN(celsius) AS low"
        " FROM TUMBLE(r, at, INTERVAL '1' MINUTE) GROUP BY room, window_start, window_end"
    )
    end = 1_767_225_660_000
    assert results(tmp_path, query, parallelism) == [
        ("attic", end, 2, 2, 26.0, 20.0),
        ("cellar", end, 2, 1, 12.0, 12.0),
        ("cellar", end + 60_000, 1, 1, 11.0, 11.0),
    ]


def test_sessions_and_windows_of_windows(tmp_path: Path) -> None:
    query = "SELECT COUNT(*) AS n, window_start FROM SESSION(r, at, INTERVAL '30' SECOND)"
    assert results(tmp_path, query) == [(4, 1_767_225_600_000), (1, 1_767_225_690_000)]
    query = (
        "CREATE VIEW m AS SELECT room, window_end, COUNT(*) AS n FROM TUMBLE(r, at, INTERVAL '1' MINUTE) GROUP BY room;"
        "SELECT SUM(n) AS total, COUNT(*) AS rooms FROM TUMBLE(m, window_end, INTERVAL '5' MINUTE)"
    )
    assert results(tmp_path, query) == [(5, 3)]


def test_views_subqueries_and_several_inserts(tmp_path: Path) -> None:
    text = READINGS + (
        "CREATE STREAM result WITH (sink='null:');"
        "CREATE VIEW warm AS SELECT * FROM r WHERE celsius > 15;"
        "INSERT INTO result SELECT room, celsius AS c FROM warm;"
        "INSERT INTO result SELECT upper_room AS room, c FROM (SELECT UPPER(room) AS upper_room, celsius AS c FROM r) AS q"
        " WHERE c < 12"
    )
    rows = rows_of(tmp_path, text, r=records(ROWS))
    assert [tuple(row) for row in rows] == [("attic", 20.0), ("attic", 32.0), ("CELLAR", 11.0)]


def test_numbers_without_columns_of_a_window_join(tmp_path: Path) -> None:
    text = (
        READINGS
        + READINGS.replace("STREAM r", "STREAM s")
        + (
            "SELECT l.room, l.celsius AS a, s.celsius AS b FROM TUMBLE(r, at, INTERVAL '1' MINUTE) AS l"
            " LEFT JOIN TUMBLE(s, at, INTERVAL '1' MINUTE) ON l.room = s.room WHERE l.celsius > 15"
        )
    )
    rows = rows_of(tmp_path, text, r=records(ROWS), s=records(ROWS[1:2]))
    assert [tuple(row) for row in rows] == [("attic", 20.0, 32.0), ("attic", 32.0, 32.0)]


THREE = (
    "SELECT l.celsius AS a, s.celsius AS b, t.celsius AS c, l.room AS room FROM TUMBLE(r, at, INTERVAL '1' MINUTE) AS l"
    " JOIN TUMBLE(s, at, INTERVAL '1' MINUTE) AS s ON l.room = s.room"
    " LEFT JOIN TUMBLE(t, at, INTERVAL '1' MINUTE) AS t ON s.room = t.room AND l.room = t.room"
)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_three_streams_join_in_one_window(tmp_path: Path, parallelism: int) -> None:
    """Rows at the borders of windows, of which only those of the same window meet."""
    text = "".join(READINGS.replace("STREAM r", f"STREAM {name}") for name in "rst") + THREE
    first = [Reading(at(second), "attic", float(second)) for second in (0, 59, 60, 119, 120)]
    third = [Reading(at(second), "attic", float(second)) for second in (59, 60)]
    rows = rows_of(tmp_path, text, parallelism=parallelism, r=records(first), s=records(first[:4]), t=records(third))
    assert [tuple(row) for row in rows] == [
        *((a, b, 59.0, "attic") for a in (0.0, 59.0) for b in (0.0, 59.0)),
        *((a, b, 60.0, "attic") for a in (60.0, 119.0) for b in (60.0, 119.0)),
    ]


def test_with_is_a_view_of_its_statement(tmp_path: Path) -> None:
    query = (
        "WITH warm AS (SELECT at, room, celsius FROM r WHERE celsius > 15), r AS (SELECT room AS x FROM warm)"
        " SELECT x FROM r UNION ALL SELECT UPPER(room) AS x FROM warm"
    )
    assert sorted(results(tmp_path, query)) == [("ATTIC",), ("ATTIC",), ("attic",), ("attic",)]


def test_distinct_rows_of_a_window(tmp_path: Path) -> None:
    query = "SELECT DISTINCT room AS x, window_start FROM TUMBLE(r, at, INTERVAL '1' MINUTE)"
    start = 1_767_225_600_000
    assert results(tmp_path, query) == [("attic", start), ("cellar", start), ("cellar", start + 60_000)]


def test_nothing_behind_a_certain_value_of_coalesce_counts(tmp_path: Path) -> None:
    query = "SELECT AVG(COALESCE(1.5, celsius)) AS m FROM TUMBLE(r, at, INTERVAL '1' HOUR)"
    assert results(tmp_path, query) == [(1.5,)]


def test_models_score_rows(tmp_path: Path) -> None:
    """The same model for the same columns is one step; conditions on scores stand in a query around."""
    pytest.importorskip("onnxruntime", reason="no ONNX Runtime here: pip install 'agiledart[onnx]'")
    models = {}
    for name, factor in (("felt", 1.5), ("far", 1.8)):
        models[name] = onnx_model(ModelDocument(1, name, "1", "linear", ("a",), 32.0, (factor,)))
        (tmp_path / f"{name}.onnx").write_bytes(models[name])
    query = """
        WITH scored AS (SELECT room, SCORE('felt.onnx', celsius) AS felt, SCORE_VERSION('felt.onnx', celsius) AS version,
                               ROUND(SCORE('felt.onnx', celsius) + SCORE('far.onnx', celsius)) AS both
                        FROM r WHERE celsius > 15)
        SELECT room, felt, version, both FROM scored WHERE felt > 60"""
    topology = loaded(tmp_path, READINGS + query)()
    assert sum(step.kind == "broadcast" for step in topology.steps) == 2
    rows = rows_of(
        tmp_path,
        READINGS + query,
        r=records(ROWS),
        scored_model=whole_file(str(tmp_path / "felt.onnx")),
        scored_model_2=whole_file(str(tmp_path / "far.onnx")),
    )
    expected = [
        (row.room, 32 + 1.5 * row.celsius, model_version(models["felt"]), round(64 + 3.3 * row.celsius))
        for row in ROWS
        if row.celsius is not None and row.celsius > 15 and 32 + 1.5 * row.celsius > 60
    ]
    assert [tuple(row) for row in rows] == expected
    assert expected


def test_texts_of_users_are_never_code(tmp_path: Path) -> None:
    evil = "x''); import os; os._exit(1) #"
    query = f"SELECT '{evil}' AS t, room || '{evil}' AS u FROM r WHERE room <> '{evil}'"
    plain = evil.replace("''", "'")
    assert results(tmp_path, query)[0] == (plain, "attic" + plain)
    for name in ('"a b"', '"a;b"', '"__import__"', '"x=1"', "class"):
        assert "cannot name a column" in fault(tmp_path, READINGS + f"SELECT room AS {name} FROM r")


def test_the_sources_and_sinks_are_parameters(tmp_path: Path) -> None:
    build = loaded(tmp_path, READINGS + "CREATE STREAM o WITH (sink='csv:o.csv'); INSERT INTO o SELECT room FROM r")
    rows: Any = run_local(build(r=records(ROWS), o=collect))
    assert len(rows) == len(ROWS)


def test_an_application_is_named_after_its_file(tmp_path: Path) -> None:
    assert loaded(tmp_path, READINGS + "SELECT room FROM r", "my rooms.sql")().name == "my-rooms"


MISTAKES = [
    ("", "1:1", "nothing is written"),
    ("SELECT room FROM r", "1:18", "there is no stream"),
    ("@SELECT rom FROM r", "2:8", "no column rom. Did you mean room?"),
    ("@SELECT r.rom FROM r", "2:8", "no column r.rom. Did you mean r.room?"),
    ("@SELECT room, room FROM r", "2:14", "two columns room"),
    ("@SELECT celsius + 1 FROM r", "2:8", "a result needs a name"),
    ("@SELECT celsius + room AS x FROM r", "2:8", "+ does not work on FLOAT and TEXT"),
    ("@SELECT room FROM r WHERE celsius", "2:26", "a condition is needed"),
    ("@SELECT room FROM r WHERE room > 3", "2:26", "TEXT and INT cannot be compared"),
    ("@SELECT room FROM r WHERE celsius = NULL", "2:26", "write IS NULL"),
    ("@SELECT room FROM r WHERE celsius IS TRUE", "2:26", "IS is for NULL only"),
    ("@SELECT room FROM r WHERE room LIKE 'a%b'", "2:26", "LIKE takes a constant"),
    ("@SELECT room FROM r WHERE room LIKE room", "2:26", "LIKE takes a constant"),
    ("@SELECT room FROM r WHERE room ILIKE 'a'", "2:26", "not supported"),
    ("@SELECT room FROM r WHERE room IN (SELECT room FROM r)", "2:26", "IN takes a list"),
    ("@SELECT room FROM r WHERE room IN (1)", "2:26", "cannot be compared"),
    ("@SELECT room FROM r WHERE EXISTS (SELECT 1)", "2:41", "not supported"),
    ("@SELECT SUM(celsius) AS s FROM r", "2:8", "aggregates need a window"),
    ("@SELECT room FROM r WHERE SUM(celsius) > 1", "2:26", "an aggregate belongs in SELECT or HAVING"),
    ("@SELECT room FROM r HAVING room = 'a'", "2:27", "HAVING needs GROUP BY"),
    ("@SELECT room FROM r ORDER BY room", "2:29", "ORDER is not supported"),
    ("@SELECT room FROM r LIMIT 3", "2:26", "LIMIT is not supported"),
    ("@SELECT DISTINCT room FROM r", "2:17", "DISTINCT would have to remember all rows"),
    ("@SELECT room FROM r GROUP BY room", "2:8", "aggregates need a window"),
    ("@WITH q AS (SELECT 1 AS a) SELECT a FROM q", "2:19", "FROM is missing"),
    ("@SELECT 1 AS a", "2:8", "FROM is missing"),
    ("@SELECT NULL AS a FROM r", "2:16", "always NULL"),
    ("@SELECT room FROM r, r", "2:21", "need the same window"),
    ("@SELECT room FROM r JOIN s ON r.room = s.room", "2:25", "there is no stream s"),
    ("@SELECT room FROM r AS a JOIN r AS b ON a.room = b.room", "2:30", "need the same window"),
    ("@SELECT x FROM NOW(r)", "2:15", "there is no window NOW"),
    ("@SELECT COUNT(*) AS n FROM TUMBLE(r, INTERVAL '1' MINUTE)", "2:27", "write TUMBLE(stream, time column"),
    (
        "@SELECT COUNT(*) AS n FROM TUMBLE(r, room, INTERVAL '1' MINUTE)",
        "2:37",
        "room is not the event time of r; that is at",
    ),
    ("@SELECT COUNT(*) AS n FROM TUMBLE(r, at, INTERVAL '1' MONTH)", "2:50", "write INTERVAL '5' MINUTE"),
    ("@SELECT COUNT(*) AS n FROM TUMBLE(r, at, INTERVAL '0' MINUTE)", "2:27", "above zero"),
    ("@SELECT COUNT(*) AS n FROM TUMBLE(r, at, 60)", "2:41", "write INTERVAL"),
    (
        "@SELECT COUNT(*) AS n FROM HOP(r, at, INTERVAL '5' MINUTE, INTERVAL '1' MINUTE)",
        "2:27",
        "every is at most size",
    ),
    ("@SELECT COUNT(*) AS n FROM TUMBLE(x, at, INTERVAL '1' MINUTE)", "2:34", "there is no stream x"),
    (
        "@SELECT room, COUNT(*) AS n FROM TUMBLE(r, at, INTERVAL '1' MINUTE)",
        "2:8",
        "neither in GROUP BY nor in an aggregate",
    ),
    ("@SELECT * FROM TUMBLE(r, at, INTERVAL '1' MINUTE)", "2:8", "* does not go with GROUP BY"),
    ("@SELECT SUM(room) AS s FROM TUMBLE(r, at, INTERVAL '1' MINUTE)", "2:8", "SUM does not work on TEXT"),
    ("@SELECT MIN(room) AS s FROM TUMBLE(r, at, INTERVAL '1' MINUTE)", "2:8", "MIN does not work on TEXT"),
    ("@SELECT SUM(DISTINCT celsius) AS s FROM TUMBLE(r, at, INTERVAL '1' MINUTE)", "2:8", "DISTINCT"),
    ("@SELECT SUM(SUM(celsius)) AS s FROM TUMBLE(r, at, INTERVAL '1' MINUTE)", "2:8", "within an aggregate"),
    ("@SELECT MIN(celsius, 3) AS s FROM TUMBLE(r, at, INTERVAL '1' MINUTE)", "2:8", "EXPRESSIONS"),
    ("@SELECT SUM(celsius) OVER () AS s FROM r", "2:8", "OVER is not supported"),
    ("@SELECT COUNT(*) AS n FROM TUMBLE(r, at, INTERVAL '1' MINUTE) GROUP BY 1", "2:71", "not their numbers"),
    ("@SELECT COUNT(*) AS n FROM TUMBLE(r, at, INTERVAL '1' MINUTE) GROUP BY ROLLUP (room)", "2:79", "not supported"),
    ("@SELECT COUNT(*) AS n FROM TUMBLE(r, at, INTERVAL '1' MINUTE) HAVING COUNT(*)", "2:69", "a condition is needed"),
    ("@SELECT CASE WHEN celsius > 1 THEN 1 ELSE 'a' END AS x FROM r", "2:18", "no common type"),
    ("@SELECT CASE WHEN celsius > 1 THEN NULL END AS x FROM r", "2:18", "no common type"),
    ("@SELECT COALESCE(celsius, 'a') AS x FROM r", "2:8", "no common type"),
    ("@SELECT CAST(room AS DATE) AS x FROM r", "2:13", "CAST to DATE is not supported"),
    ("@SELECT CAST(at AS INT) AS x FROM r", "2:13", "TIME cannot be cast"),
    ("@SELECT TRY_CAST(room AS INT) AS x FROM r", "2:17", "not supported"),
    ("@SELECT UPPER(celsius) AS x FROM r", "2:14", "a text is needed"),
    ("@SELECT ABS(room) AS x FROM r", "2:12", "a number is needed"),
    ("@SELECT ROUND(celsius, room) AS x FROM r", "2:8", "a constant number of digits"),
    ("@SELECT FLOOR(celsius, 1) AS x FROM r", "2:14", "DECIMALS"),
    ("@SELECT TRIM(BOTH 'x' FROM room) AS x FROM r", "2:18", "not supported"),
    ("@SELECT EXTRACT(EPOCH FROM at) AS x FROM r", "2:27", "EXTRACT takes"),
    ("@SELECT EXTRACT(YEAR FROM room) AS x FROM r", "2:26", "a time is needed"),
    ("@SELECT DATE_TRUNC('month', at) AS x FROM r", "2:8", "DATE_TRUNC takes"),
    ("@SELECT POWER(celsius, 2) AS x FROM r", "2:8", "not supported"),
    ("@SELECT nonsense(celsius) AS x FROM r", "2:8", "not supported"),
    ("@SELECT at + 5 AS x FROM r", "2:8", "+ does not work on TIME and INT"),
    ("@SELECT TIMESTAMP 'yesterday' AS x FROM r", "2:18", "is no time"),
    ("@SELECT 99999999999999999999 AS x FROM r", "2:8", "more than 64 bits"),
    ("@SELECT room FROM r UNION SELECT room FROM r", "2:8", "write UNION ALL"),
    ("@SELECT room FROM r UNION ALL SELECT room, celsius FROM r", "2:37", "needs 1 columns"),
    ("@SELECT room FROM r UNION ALL SELECT celsius FROM r", "2:8", "TEXT and FLOAT"),
    ("@SELECT room FROM r UNION ALL SELECT room FROM r ORDER BY 1", "2:58", "ORDER is not supported"),
    ("@SELECT room FROM", "2:13", "not SQL that is understood"),
    ("@SELECT room FROM r WHERE", "2:20", "not SQL that is understood"),
    ("@SELECT (room FROM r", "2:14", "not SQL that is understood"),
    ("@SELECT 'room FROM r", "1:1", "is not SQL"),
    ("@DROP TABLE r", "2:1", "is not supported"),
    ("@UPDATE r SET room = 'a'", "2:1", "is not supported"),
    ("@DELETE FROM r", "2:1", "is not supported"),
    ("@INSERT INTO o SELECT room FROM r", "2:13", "there is no sink o"),
    ("@INSERT INTO o VALUES (1)", "2:13", "there is no sink o"),
    ("@CREATE VIEW r AS SELECT room FROM r", "2:13", "already a stream r"),
    ("@CREATE VIEW v AS SELECT room FROM r; SELECT celsius FROM r", "2:13", "nothing reads v"),
    ("@CREATE STREAM o WITH (sink='null:'); SELECT room FROM r", "2:15", "nothing is inserted into o"),
    ("@SELECT room FROM r; SELECT celsius FROM r", "2:21", "a second SELECT"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='null:')", "1:1", "nothing is written"),
    ("CREATE STREAM r (at TIMESTAMP)", "1:30", "WITH is expected"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (", "1:37", "an option is missing"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (sauce='null:')", "1:38", "no option sauce"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source=null)", "1:45", "a text in single quotes"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='null:', source='null:')", "1:54", "stands twice"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='')", "1:45", "is not a connector"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='rooms.csv')", "1:45", "did you mean csv:rooms.csv"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (event_time='at')", "1:15", "needs source="),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='null:', sink='null:')", "1:15", "needs source="),
    (
        "CREATE STREAM r (at TIMESTAMP) WITH (source='null:', event_time='on')",
        "1:65",
        "names a column of type TIMESTAMP",
    ),
    ("CREATE STREAM r (at TEXT) WITH (source='null:', event_time='at')", "1:60", "names a column of type TIMESTAMP"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='null:', idle_timeout='5')", "1:67", "no length of time"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='null:', overload='drop')", "1:63", "overload is one of"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='null:', clock='utc')", "1:60", "clock is one of"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (source='null:') x", "1:54", "complete before this"),
    ("CREATE STREAM r (at MONEY) WITH (source='null:')", "1:21", "there is no type MONEY"),
    ("CREATE STREAM r (at TIMESTAMP, at TEXT) WITH (source='null:')", "1:32", "two columns at"),
    ("CREATE STREAM r (at TIMESTAMP NOT) WITH (source='null:')", "1:34", "NULL is expected"),
    ("CREATE STREAM r () WITH (source='null:')", "1:18", "cannot be the name of a column"),
    ("CREATE STREAM r WITH (source='null:')", "1:15", "needs columns"),
    ("CREATE STREAM r (at TIMESTAMP) WITH (sink='null:')", "1:15", "is a sink"),
    ("CREATE STREAM r WITH (sink='null:', overload='block')", "1:46", "is an option of sources"),
    ("CREATE STREAM 5 WITH (sink='null:')", "1:15", "cannot be the name of the stream"),
    ("CREATE STREAM topology WITH (sink='null:')", "1:15", "cannot be the name of the stream"),
    ("CREATE STREAM", "1:8", "the name of the stream is missing"),
]


def shown_fault(folder: Path, text: str) -> str:
    """The message of a mistake; `@` stands for the declaration of the stream r in the first line."""
    return fault(folder, text.replace("@", READINGS, 1) if text.startswith("@") else text)


ALL_MISTAKES = [*MISTAKES, *((text.replace("#", WINDOW), place, message) for text, place, message in REFUSED)]


def test_many_mistakes_were_collected() -> None:
    assert len({text for text, _, _ in ALL_MISTAKES}) == len(ALL_MISTAKES) >= 200


@pytest.mark.parametrize(("text", "place", "message"), ALL_MISTAKES)
def test_mistakes_are_refused_at_their_place(tmp_path: Path, text: str, place: str, message: str) -> None:
    shown = shown_fault(tmp_path, text)
    assert shown.startswith(f"query.sql:{place}:"), shown
    assert message in shown
