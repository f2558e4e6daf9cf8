"""Spark writes to a feed of a real mesh: tables once by `writeId`, streams once by query and batch, refusals in one sentence."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from agiledart_kernel.errors import ConfigurationError
from agiledart_node.wire.commands import CreateToken
from pyspark_agiledart.writer_options import parse_writer_options
from tests.e2e.mesh import AgentProcess, cli, mesh

pytestmark = [pytest.mark.xdist_group("spark")]


@dataclass
class FeedAgent:
    """An agent with feeds, and files with the tokens of a writer and of a reader of all."""

    agent: AgentProcess
    folder: Path

    def feed(self, name: str) -> dict[str, str]:
        """Create a feed and return the options of its writer."""
        made = cli("feed", "create", name, "--agent", str(self.agent.state_dir))
        assert made.returncode == 0, made.stderr
        return {"feed": name, "tokenFile": self.token("writer"), "agentTimeout": "20s"}

    def token(self, role: str) -> str:
        path = self.folder / f"{role}.token"
        if not path.exists():
            path.write_text(str(self.agent.ask(CreateToken(role=role))["token"]))
            path.chmod(0o600)
        return str(path)

    def table(self, spark: Any, name: str) -> Any:
        """Return the feed's log as a table."""
        return spark.read.format("agiledart").options(sink=name, tokenFile=self.token("reader")).load()


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FeedAgent]:
    with mesh(1) as made:
        yield FeedAgent(made.agents[0], tmp_path_factory.mktemp("tokens"))


def test_a_table_of_every_type_comes_back_equal(spark: Any, keeper: FeedAgent) -> None:
    at = datetime(2013, 1, 7, 12, 30, 1, 250_000, UTC).replace(tzinfo=None)
    rows = [
        ("a", 1, 0.5, True, b"\0\1", at, date(2013, 1, 7), Decimal("1.25"), [1, None], {"k": at}, (at, "x")),
        (None,) * 11,
    ]
    schema = (
        "s string, n long, x double, b boolean, raw binary, at timestamp_ntz, day date, d decimal(38,18), l array<long>, "
        "m map<string,timestamp_ntz>, t struct<at:timestamp_ntz,name:string>"
    )
    options = keeper.feed("types")
    spark.createDataFrame(rows, schema).coalesce(1).write.format("agiledart").options(**options).mode("append").save()
    found = keeper.table(spark, "types").collect()
    assert [tuple(row)[:5] for row in found] == [row[:5] for row in rows]
    first = found[0]
    assert (first.d, first.day, first.l, first.t.name) == (Decimal("1.25"), date(2013, 1, 7), [1, None], "x")
    session_zone = at.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)
    assert first["at"] == session_zone
    assert (first.m["k"], first.t["at"]) == (session_zone, session_zone)
    assert tuple(found[1]) == (None,) * 11


def test_a_write_with_an_id_is_published_once(spark: Any, keeper: FeedAgent) -> None:
    frame, options = spark.range(0, 9_000, 1, 3), keeper.feed("once")
    for _ in range(2):
        frame.write.format("agiledart").options(**options, writeId="first").mode("append").save()
    assert keeper.table(spark, "once").count() == 9_000
    frame.write.format("agiledart").options(**options).mode("append").save()
    table = keeper.table(spark, "once")
    assert sorted(row.id for row in table.collect()) == sorted([*range(9_000)] * 2)


def test_a_restarted_stream_writes_each_row_once(spark: Any, keeper: FeedAgent, tmp_path: Path) -> None:
    options = keeper.feed("stream")
    source = tmp_path / "in"

    def run() -> None:
        frame = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(source))
        query = (
            frame.writeStream.format("agiledart")
            .options(**options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for start in (0, 100):
        spark.range(start, start + 100).coalesce(1).write.mode("append").parquet(str(source))
    run()
    (newest,) = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]"))[-1:]
    newest.unlink()  # as after a crash between the publication and Spark's own note of it
    (tmp_path / "checkpoint" / "commits" / f".{newest.name}.crc").unlink(missing_ok=True)
    spark.range(200, 300).coalesce(1).write.mode("append").parquet(str(source))
    run()
    assert [row.id for row in keeper.table(spark, "stream").sort("id").collect()] == list(range(300))


def test_an_unfit_schema_names_both(spark: Any, keeper: FeedAgent) -> None:
    options = keeper.feed("fixed")
    spark.range(3).write.format("agiledart").options(**options).mode("append").save()
    with pytest.raises(Exception, match="has the fields id: int; the rows have name: string"):
        spark.sql("select 'x' as name").write.format("agiledart").options(**options).mode("append").save()


@pytest.mark.parametrize(
    ("options", "is_stream", "sentence"),
    [
        ({}, True, "needs a feed"),
        ({"feed": "../x"}, True, "cannot be the name"),
        ({"feed": "x", "writeId": "a"}, True, "checkpointLocation"),
        ({"feed": "x", "writeId": "a" * 123}, False, "at most 122 bytes"),
        ({"feed": "x", "token": "adart1"}, False, "tokenFile"),
        ({"feed": "x", "sink": "y"}, False, "no option sink"),
        ({"feed": "x", "tokenFile": "a", "identityFile": "b"}, False, "only one"),
    ],
)
def test_wrong_writer_options_are_refused(options: dict[str, str], is_stream: bool, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        parse_writer_options(options, is_stream=is_stream)


def test_a_batch_cannot_overwrite_a_feed(spark: Any, keeper: FeedAgent) -> None:
    with pytest.raises(Exception, match="never overwritten"):
        spark.range(3).write.format("agiledart").options(**keeper.feed("kept")).mode("overwrite").save()
