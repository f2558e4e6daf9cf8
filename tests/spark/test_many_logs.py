"""Several logs as one table, where rows come from, and the choice of columns and rows; without a JVM."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, GreaterThan, In, IsNotNull, StringContains
from pyspark.sql.streaming.datasource import ReadAllAvailable

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.client import ReceivedRows, SinkLogError
from agiledart_sink_log.protocol import UNKNOWN_SINK, EndsReply, Located, LogsListed
from agiledart_transport.request_reasons import NOT_ALLOWED
from pyspark_agiledart import DefaultSource, connection, log_group
from pyspark_agiledart.batch_reader import BatchReader
from pyspark_agiledart.log_group import LogGroup
from pyspark_agiledart.reader_options import ReaderOptions, parse_options
from pyspark_agiledart.row_filter import COMPARISONS, parse_where, rows_that_match
from pyspark_agiledart.types import FieldType
from tests.spark.fake_log import FakeLog, away


class Logs:
    """Several fake logs behind one client; some may be away, or not there yet."""

    def __init__(self, logs: dict[str, FakeLog]) -> None:
        self.logs, self.away, self.absent = logs, set[str](), set[str]()
        self.cannot_list, self.silent = False, 0

    def _log(self, sink: str) -> FakeLog:
        if sink in self.absent or sink not in self.logs:
            raise SinkLogError(f"There is no log {sink}.", UNKNOWN_SINK)
        if sink in self.away:
            raise away()
        return self.logs[sink]

    def logs_that_fit(self, pattern: str) -> LogsListed:
        if self.cannot_list:
            raise away()
        names = (name for name in sorted(self.logs) if fnmatchcase(name, pattern) and name not in self.absent)
        return LogsListed(0, tuple(names), self.silent)

    def locate(self, sink: str) -> Located:
        return self._log(sink).locate(sink)

    def ends(
        self, sink: str, wait_ms: int = 0, after: Mapping[int, int] | None = None, *, uncommitted: bool = False
    ) -> EndsReply:
        return self._log(sink).ends(sink, wait_ms, after, uncommitted=uncommitted)

    def fetch_parts(
        self, sink: str, partition: int, offset: int, columns: Any, where: Any, **options: Any
    ) -> ReceivedRows:
        return self._log(sink).fetch_parts(sink, partition, offset, columns, where, **options)

    def close(self) -> None: ...


PORTO = (("taxi", FieldType("string")), ("number", FieldType("int")), ("tip", FieldType("float", True)))


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs({"york": FakeLog(partitions=2), "porto": FakeLog(partitions=1, fields=PORTO)})
    for number in range(5):
        made.logs["york"].append(number % 2, [("y", number, float(number))])
    made.logs["porto"].append(0, [("p", 10, None), ("q", 11, 0.5)])
    client = SimpleNamespace(
        logs=made.logs_that_fit, locate=made.locate, ends=made.ends, fetch_parts=made.fetch_parts, close=made.close
    )
    opened: Callable[[ReaderOptions, float], Any] = lambda options, patience: client  # noqa: E731
    monkeypatch.setattr(connection, "open_client", opened)
    return made


def source(**options: str) -> DefaultSource:
    return DefaultSource(CaseInsensitiveDict({"sink": "york, porto", "waitMs": "0", "agentTimeout": "0s", **options}))


def table(**options: str) -> list[dict[str, Any]]:
    made = source(**options)
    reader = made.reader(made.schema())
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def test_fields_of_one_log_are_null_for_the_others(logs: Logs) -> None:
    assert source().schema().simpleString() == "struct<taxi:string,number:bigint,fare:double,tip:double>"
    rows = table()
    assert sorted(row["number"] for row in rows) == [0, 1, 2, 3, 4, 10, 11]
    assert [(row["fare"], row["tip"]) for row in rows if row["number"] == 11] == [(None, 0.5)]


def test_a_changed_type_is_refused_and_both_logs_are_named(logs: Logs) -> None:
    logs.logs["porto"].fields = (("taxi", FieldType("int")),)
    with pytest.raises(ConfigurationError, match=r"taxi is string in the log york and int in the log porto"):
        source().schema()


def test_a_stream_goes_on_without_a_log_and_is_exact_once_it_is_back(
    logs: Logs, capsys: pytest.CaptureFixture[str]
) -> None:
    made = source()
    schema = made.schema()
    reader = made.streamReader(schema)
    logs.away.add("porto")
    logs.logs["porto"].first = {0: 1}  # joins with its first retained row
    at = reader.initialOffset()
    seen: Counter[int] = Counter()
    for step in range(4):
        if step == 1:
            logs.away.clear()
        if step == 2:
            logs.away.add("york")
            logs.logs["porto"].append(0, [("p", 12, 0.1)])
        if step == 3:
            logs.away.clear()
            logs.logs["york"].append(0, [("y", 5, 0.1)])
        end = reader.latestOffset(json.loads(json.dumps(at)), ReadAllAvailable())
        assert set(at) <= set(end)
        for task in reader.partitions(at, end):
            for batch in reader.read(task):
                seen.update(batch.column("number").to_pylist())
        at = end
    assert seen == Counter([0, 1, 2, 3, 4, 5, 11, 12])
    said = capsys.readouterr().err
    assert "the log porto is away; reading goes on without it" in said
    assert "the log york is there again after" in said


def test_a_table_without_a_log_needs_consent(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    made = source()
    schema = made.schema()
    logs.away.add("porto")
    with pytest.raises(OperationFailed, match=r"1 of the logs cannot be read: porto \(for 0 s\)"):
        made.reader(schema).partitions()
    assert len(table(unreachable="skip")) == 5
    assert "the log porto is away" in capsys.readouterr().err
    with pytest.raises(OperationFailed, match="porto"):
        source(unreachable="fail").streamReader(schema).initialOffset()


class Time:
    """A clock that only waits move."""

    def __init__(self) -> None:
        self.now = 100.0

    def read(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def group(time: Time, said: list[str], timeout_s: float, **options: str) -> LogGroup:
    parsed = parse_options({"sink": "york,porto", "agentTimeout": "60s", **options})
    return LogGroup(parsed, timeout_s, said.append, time.read, time.wait)


@pytest.mark.parametrize("absence", ["away", "absent"])
def test_a_start_without_a_log_fails_after_the_timeout(logs: Logs, absence: str) -> None:
    getattr(logs, absence).add("porto")
    time, said = Time(), list[str]()
    with pytest.raises(OperationFailed, match=r"1 of the logs cannot be read: porto \(for \d\d s\)"):
        group(time, said, 60.0, unreachable="fail").ends()
    assert 155.0 < time.now <= 160.0
    assert set(group(time, said, 60.0).ends()) == {"york/0", "york/1"}


def test_a_log_that_comes_back_within_the_timeout_is_not_missing(logs: Logs) -> None:
    logs.away.add("porto")
    time, said = Time(), list[str]()
    made = group(time, said, 0.0, unreachable="fail")
    assert "porto/0" not in made.ends()
    time.wait(50.0)
    logs.away.clear()
    assert "porto/0" in made.ends()
    time.wait(50.0)
    logs.away.add("porto")
    assert "porto/0" not in made.ends()
    time.wait(61.0)
    with pytest.raises(OperationFailed, match=r"porto \(for 61 s\)"):
        made.ends()


def test_logs_that_stay_away_are_reported_once_a_minute(logs: Logs) -> None:
    logs.away.add("porto")
    time, said = Time(), list[str]()
    made = group(time, said, 0.0, unreachable="skip")
    for _ in range(13):
        made.ends()
        time.wait(10.0)
    logs.away.clear()
    made.ends()
    assert [line.partition(": ")[2].partition(" (")[0] for line in said[:1]] == [
        "the log porto is away; reading goes on without it"
    ]
    assert said[1:] == [
        "agiledart: 1 of the logs cannot be read: porto (for 60 s)",
        "agiledart: 1 of the logs cannot be read: porto (for 120 s)",
        "agiledart: the log porto is there again after 130 s",
    ]


def test_rows_of_a_running_batch_are_skipped_with_a_report(logs: Logs, capsys: pytest.CaptureFixture[str]) -> None:
    for choice, numbers in (("skip", [0, 1, 2, 3, 4]), ("wait", None)):
        made = source(unreachable=choice)
        reader = made.streamReader(made.schema())
        at = reader.initialOffset()
        tasks = reader.partitions(at, reader.latestOffset(at, ReadAllAvailable()))
        logs.away.add("porto")
        read = lambda: [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]  # noqa: B023, E731
        if numbers is None:
            with pytest.raises(SinkLogError):
                read()
        else:
            assert sorted(row["number"] for row in read()) == numbers
            assert "rows 0 to 2 of porto/0 are skipped (unreachable=skip)" in capsys.readouterr().err
        logs.away.clear()


def test_a_log_that_appears_joins_a_stream(logs: Logs) -> None:
    logs.absent.add("porto")
    made = source(startingOffsets="earliest")
    reader = made.streamReader(source(sink="york").schema())
    at = reader.initialOffset()
    assert at == {"york/0": 0, "york/1": 0}
    logs.absent.clear()
    assert reader.latestOffset(at, ReadAllAvailable()) == {"york/0": 3, "york/1": 2, "porto/0": 2}


def test_rows_carry_their_origin(logs: Logs) -> None:
    rows = table(metadata="true")
    assert Counter((row["_log"], row["_partition"]) for row in rows) == {
        ("york", 0): 3,
        ("york", 1): 2,
        ("porto", 0): 2,
    }
    assert [row["_offset"] for row in rows if row["_log"] == "porto"] == [0, 1]
    assert {row["_node"] for row in rows} == {"a1"}
    assert all(row["_stored_at"].year == 1970 for row in rows)
    assert len({(row["_log"], row["_partition"], row["_offset"]) for row in rows}) == 7
    logs.logs["porto"].fields = (("_log", FieldType("string")),)
    with pytest.raises(ConfigurationError, match="field _log of its own"):
        source(metadata="true").schema()


def test_a_pattern_reads_all_logs_that_fit(logs: Logs) -> None:
    logs.logs["yorkshire"] = FakeLog(partitions=1)
    logs.logs["yorkshire"].append(0, [("z", 20, 2.0)])
    assert sorted(row["number"] for row in table(sink="york*")) == [0, 1, 2, 3, 4, 20]
    assert sorted(row["number"] for row in table(sink="yorks?ire, porto")) == [10, 11, 20]
    assert source(sink="p*").schema() == source(sink="porto").schema()
    with pytest.raises(ConfigurationError, match=r"No log fits sink=city-\*"):
        source(sink="city-*").schema()


def test_a_log_that_fits_later_joins_a_stream_with_its_first_row(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(log_group, "LIST_SECONDS", 0.0)
    made = source(sink="*o*")
    reader = made.streamReader(made.schema())
    at = reader.initialOffset()
    assert at == {"porto/0": 0, "york/0": 0, "york/1": 0}
    logs.logs["oporto"] = FakeLog(partitions=1)
    logs.logs["oporto"].append(0, [("o", 30, 3.0)])
    end = reader.latestOffset(at, ReadAllAvailable())
    assert end == {"oporto/0": 1, "porto/0": 2, "york/0": 3, "york/1": 2}
    rows = [row for task in reader.partitions(at, end) for batch in reader.read(task) for row in batch.to_pylist()]
    assert sorted(row["number"] for row in rows) == [0, 1, 2, 3, 4, 10, 11, 30]
    logs.cannot_list = True
    logs.absent.add("oporto")  # its agent is away: it is not listed, and is not forgotten
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert "new logs that fit *o* are not looked for" in capsys.readouterr().err


def test_agents_that_do_not_answer_a_search_are_reported(logs: Logs) -> None:
    time, said = Time(), list[str]()
    made = group(time, said, 0.0, sink="*o*")
    for logs.silent in (0, 2, 2, 1, 0, 1):
        made.ends()
        time.wait(log_group.LIST_SECONDS)
    assert [line.partition(" answer")[0] for line in said] == [
        f"agiledart: {agents} did not" for agents in ("2 agents", "1 agent", "1 agent")
    ]
    assert said[0].endswith("that fit *o*; reading goes on without the logs that only they have")


def test_a_checkpoint_of_another_pattern_is_refused(logs: Logs) -> None:
    reader = source(sink="y*").streamReader(source(sink="york").schema())
    assert reader.latestOffset({"york/0": 1, "york/1": 0}, ReadAllAvailable()) == {"york/0": 3, "york/1": 2}
    with pytest.raises(ConfigurationError, match="The checkpoint belongs to another sink"):
        reader.latestOffset({"porto/0": 1}, ReadAllAvailable())
    assert source(sink="y*", startingOffsets='{"york/0": 1}').streamReader(source(sink="york").schema())
    with pytest.raises(ConfigurationError, match="startingOffsets"):
        source(sink="y*", startingOffsets='{"porto/0": 1}').streamReader(source(sink="york").schema())


def test_a_missing_grant_is_reported(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = logs.logs["porto"]
    monkeypatch.setattr(asked, "locate", lambda sink: _refuse())
    monkeypatch.setattr(asked, "ends", lambda *arguments, **options: _refuse())
    for read in (lambda: source().schema(), lambda: source().reader(source(sink="york").schema()).partitions()):
        with pytest.raises(SinkLogError, match="The log porto: this grant is for another sink"):
            read()


def _refuse() -> Any:
    raise SinkLogError("this grant is for another sink", NOT_ALLOWED)


def test_many_small_ranges_share_tasks(logs: Logs) -> None:
    for number in range(200):
        logs.logs[f"site-{number}"] = FakeLog(partitions=1)
        logs.logs[f"site-{number}"].append(0, [("s", number, 0.0)] * (number % 7 + 1))
    made = source(sink=",".join(f"site-{number}" for number in range(200)))
    reader = made.reader(made.schema())
    tasks = reader.partitions()
    assert len(tasks) == 64
    read = Counter(row["number"] for task in tasks for batch in reader.read(task) for row in batch.to_pylist())
    assert read == Counter({number: number % 7 + 1 for number in range(200)})


def test_columns_and_conditions(logs: Logs) -> None:
    assert table(columns="number, _offset", metadata="true", where="number >= 2 AND taxi LIKE 'y%'") == [
        {"number": 2, "_offset": 1},
        {"number": 4, "_offset": 2},
        {"number": 3, "_offset": 1},
    ]
    assert [row["number"] for row in table(columns="number", where="tip IS NOT NULL")] == [11]  # york has no tip
    assert sorted(row["number"] for row in table(where="tip IS NULL")) == [0, 1, 2, 3, 4, 10]
    with pytest.raises(ConfigurationError, match="columns names fares; the log has taxi, number, fare, tip"):
        source(columns="fares").schema()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("number", "it ends too early"),
        ("number > 1 OR number < 5", "'OR' stands where AND should be"),
        ("taxi LIKE '%x'", "LIKE takes a prefix"),
        ("number ~ 3", "is not understood"),
    ],
)
def test_a_condition_that_is_not_understood_shows_an_example(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match="Write it as in where=") as caught:
        parse_where(text)
    assert reason in str(caught.value)


def test_a_literal_of_another_type_is_refused(logs: Logs) -> None:
    with pytest.raises(ConfigurationError, match="number is int64, and 'x' is no value of that type"):
        table(sink="york", where="number = 'x'")


def test_filters_of_spark_are_applied_and_returned(logs: Logs) -> None:
    made = source(sink="york", pushFilters="true")
    reader: Any = made.reader(made.schema())
    filters = [GreaterThan(("number",), 2), In(("taxi",), ("y",)), IsNotNull(("fare",)), StringContains(("taxi",), "y")]
    filters.append(EqualTo(("_offset",), 1))
    assert list(reader.pushFilters(filters)) == filters
    read = [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]
    assert sorted(row["number"] for row in read) == [3, 4]
    plain = source(sink="york")
    assert (
        type(plain.reader(plain.schema())) is BatchReader
    )  # Spark refuses a reader with filters while its setting is off


ROUNDED = st.floats(-2, 2).map(lambda number: round(number, 1))
VALUES = st.one_of(
    st.none(), st.sampled_from([float("nan"), float("inf"), -0.0, 0.0]), st.floats(-3, 3).map(lambda x: round(x, 1))
)


@given(st.lists(VALUES, max_size=20), st.sampled_from(COMPARISONS), ROUNDED)
def test_comparisons_are_those_of_spark(values: list[float | None], sign: str, limit: float) -> None:
    """Null matches nothing; NaN is greater than every number and equal to none of them."""

    def matches(value: float | None) -> bool:
        if value is None:
            return False
        order = 1 if value != value else (value > limit) - (value < limit)
        return {"=": order == 0, "!=": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[
            sign
        ]

    column = pyarrow.array(values, pyarrow.float64(), from_pandas=False)
    found = rows_that_match(parse_where(f"x {sign} {limit}"), {"x": column}).to_pylist()
    assert found == [matches(value) for value in values]
