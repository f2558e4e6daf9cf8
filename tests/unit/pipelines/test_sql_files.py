"""SQL files of a pipeline: the tables that they define, and the tables that their queries read."""

import pytest

from agiledart_pipelines.sql_files import (
    FLOW,
    MATERIALIZED_VIEW,
    STREAMING_TABLE,
    VIEW,
    SqlDefinition,
    SqlRead,
    sql_definitions,
    tables_read,
)

FILE = """-- FROM a comment
SET spark.sql.shuffle.partitions = 1;
CREATE STREAMING TABLE silver AS
  SELECT *, 'x FROM y; z' AS text FROM STREAM(`my`.`bronze`) WHERE n > 0;

CREATE OR REFRESH MATERIALIZED VIEW IF NOT EXISTS db.gold
  COMMENT 'by day' AS SELECT count(*) FROM silver AS s JOIN cells ON s.cell = cells.cell;
CREATE TEMPORARY VIEW late AS SELECT * FROM STREAM silver /* FROM nothing */;
CREATE FLOW more AS INSERT INTO all_rows BY NAME SELECT * FROM STREAM late
"""


def test_statements_define_tables_and_read_others() -> None:
    assert sql_definitions(FILE) == [
        SqlDefinition(STREAMING_TABLE, "silver", "silver", 3, (SqlRead("bronze", True),)),
        SqlDefinition(MATERIALIZED_VIEW, "gold", "gold", 6, (SqlRead("silver", False), SqlRead("cells", False))),
        SqlDefinition(VIEW, "late", "late", 8, (SqlRead("silver", True),)),
        SqlDefinition(FLOW, "more", "all_rows", 9, (SqlRead("late", True),)),
    ]


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("SELECT extract(day FROM at), trim('x' FROM name) FROM a, b", ["a", "b"]),
        ("WITH c AS (SELECT * FROM a), d AS (SELECT * FROM c) SELECT * FROM c JOIN d USING (n)", ["a"]),
        ("SELECT * FROM (SELECT n, m FROM a) x, range(10), b WHERE n IN (SELECT n FROM c)", ["a", "b", "c"]),
        ("SELECT a.n, b FROM a LEFT JOIN b ON a.n = b.n AND f(a.n, b.m) > 1, c ORDER BY n, m", ["a", "b", "c"]),
        ("SELECT 1", []),
        ("FROM a |> WHERE n > 1", ["a"]),
        ("SELECT * FROM a UNION ALL (SELECT * FROM b)", ["a", "b"]),
    ],
)
def test_names_behind_from_and_join_are_tables(query: str, tables: list[str]) -> None:
    assert [read.table for read in tables_read(query)] == tables
