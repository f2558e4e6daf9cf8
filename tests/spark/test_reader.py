"""The readers without a JVM: Spark's use of them (pickling, JSON offsets, limits, restarts), done here."""

import json
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from typing import Any

import msgspec
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.client import SinkLogError
from agiledart_sink_log.protocol import DAMAGED, UNKNOWN_SINK, StoredBatch
from agiledart_transport.request_reasons import NOT_ALLOWED
from pyspark_agiledart import DefaultSource
from pyspark_agiledart.arrow_columns import spark_schema
from pyspark_agiledart.batch_reader import BatchReader
from pyspark_agiledart.ranges import LogRange
from pyspark_agiledart.read_limits import admitted, ends_within, fair_shares
from pyspark_agiledart.reader_options import ReaderOptions, parse_options
from pyspark_agiledart.stream_reader import StreamReader
from tests.spark.fake_log import FIELDS, FakeLog, away, served


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Any:
    with served(FakeLog(), monkeypatch) as found:
        for partition, sizes in ((0, (3, 2, 4)), (1, (1,))):
            number = 0
            for size in sizes:
                found.append(partition, [(f"p{partition}", number + index, 1.0) for index in range(size)])
                number += size
        yield found


def stream(**options: str) -> StreamReader:
    found = parse_options({"sink": "trips", "waitMs": "0", **options})
    return StreamReader(found, spark_schema(FIELDS), pause=lambda seconds: None)


def rows_of(reader: StreamReader | BatchReader, planned: Any) -> list[tuple[str, int]]:
    """As on executors: reader and partitions are pickled."""
    far: Any = cloudpickle.loads(cloudpickle.dumps(reader, protocol=5)) if isinstance(reader, BatchReader) else reader
    found = []
    for one in planned:
        for batch in far.read(pickle.loads(pickle.dumps(one))):
            found += [(row["taxi"], row["number"]) for row in batch.to_pylist()]
    return found


def ranges_of(planned: Any) -> list[LogRange]:
    return [part for task in planned for part in task.ranges]


def test_the_source_imports_little() -> None:
    """Spark's look-up imports it where one exception hides all Python sources."""
    code = (
        "import sys; sys.modules['pyarrow'] = None; import pyspark_agiledart; "
        "print(sorted(name for name in sys.modules if name.startswith(('agiledart', 'pyspark_agiledart', 'msgspec'))))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == "['pyspark_agiledart']"


def test_schema_and_batch(log: FakeLog) -> None:
    source = DefaultSource(CaseInsensitiveDict({"Sink": "trips"}))
    source = cloudpickle.loads(cloudpickle.dumps(source))
    assert source.schema().simpleString() == "struct<taxi:string,number:bigint,fare:double>"
    reader = source.reader(source.schema())
    planned = reader.partitions()
    assert [(one.partition, one.start, one.end) for one in ranges_of(planned)] == [(0, 0, 9), (1, 0, 1)]
    assert rows_of(reader, planned) == [("p0", number) for number in range(9)] + [("p1", 0)]
    assert list(reader.read(InputPartition(None))) == []


def test_a_batch_starts_at_its_offset(log: FakeLog) -> None:
    reader = BatchReader(parse_options({"sink": "trips", "startingOffsets": '{"trips/0": 4}'}), spark_schema(FIELDS))
    assert rows_of(reader, reader.partitions()) == [("p0", number) for number in range(4, 9)] + [("p1", 0)]
    with pytest.raises(ConfigurationError, match="latest"):
        BatchReader(parse_options({"sink": "trips", "startingOffsets": "latest"}), spark_schema(FIELDS))


def test_offsets_are_keyed_by_the_log_and_survive_json(log: FakeLog) -> None:
    reader = stream()
    start = reader.initialOffset()
    assert start == {"trips/0": 0, "trips/1": 0}
    end = reader.latestOffset(json.loads(json.dumps(start)), ReadAllAvailable())
    assert end == {"trips/0": 9, "trips/1": 1}
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.reportLatestOffset() == end
    assert len(rows_of(reader, reader.partitions(start, end))) == 10
    assert reader.partitions(end, end) == []


def test_an_idle_query_asks_once_with_a_long_poll(log: FakeLog) -> None:
    reader = StreamReader(parse_options({"sink": "trips", "maxBytesPerBatch": "1MiB"}), spark_schema(FIELDS))
    end = {"trips/0": 9, "trips/1": 1}
    for _ in range(3):
        assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
        assert reader.reportLatestOffset() == end
    assert log.asked == ["ends"] * 3
    assert log.waits == [500] * 3


def test_starting_offsets(log: FakeLog) -> None:
    assert stream(startingOffsets="latest").initialOffset() == {"trips/0": 9, "trips/1": 1}
    assert stream(startingOffsets='{"trips/1": 1}').initialOffset() == {"trips/0": 0, "trips/1": 1}
    with pytest.raises(ConfigurationError, match="trips/7"):
        stream(startingOffsets='{"trips/7": 1}').initialOffset()
    with pytest.raises(ConfigurationError, match="beyond"):
        stream(startingOffsets='{"trips/1": 2}').initialOffset()


def test_limits(log: FakeLog) -> None:
    reader = stream(maxRowsPerBatch="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    end = reader.latestOffset({"trips/0": 0, "trips/1": 0}, limit)
    assert end == {"trips/0": 3, "trips/1": 1}  # partition 1 leaves its share
    assert reader.latestOffset({"trips/0": 0, "trips/1": 0}, ReadAllAvailable())["trips/0"] == 9  # Trigger.Once
    assert isinstance(stream(maxBytesPerBatch="60").getDefaultReadLimit(), ReadMaxBytes)
    assert stream().getDefaultReadLimit() == ReadMaxRows(1_000_000)  # a first table soon, not after the whole log
    assert stream(maxRowsPerBatch="0").getDefaultReadLimit() == ReadAllAvailable()


@pytest.mark.parametrize("most", [1, 30, 45, 60, 80, 100, 1_000])
def test_a_byte_limit_is_kept_to_the_stored_batch(log: FakeLog, most: int) -> None:
    """Micro-batches end on borders of stored batches, hold no more bytes than allowed, and leave out none that would fit."""
    reader = stream(maxBytesPerBatch=str(most))
    at = {"trips/0": 0, "trips/1": 0}
    seen = 0
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        taken, left = [], []
        for partition in (0, 1):
            start, stop = at[f"trips/{partition}"], end[f"trips/{partition}"]
            borders = {0, *(batch.offset + batch.rows for batch in log.stored[partition])}
            assert stop in borders
            taken += [len(b.body) for b in log.stored[partition] if start <= b.offset < stop]
            left += [len(b.body) for b in log.stored[partition] if b.offset == stop]
        assert sum(taken) <= most or len(taken) == 1
        assert all(sum(taken) + size > most for size in left)
        seen += len(rows_of(reader, reader.partitions(at, end)))
        at = end
    assert seen == 10


def test_both_limits_are_kept(log: FakeLog) -> None:
    reader = stream(maxBytesPerBatch="1000", maxRowsPerBatch="4")
    assert reader.latestOffset({"trips/0": 0, "trips/1": 0}, reader.getDefaultReadLimit()) == {
        "trips/0": 3,
        "trips/1": 1,
    }


def test_a_byte_limit_does_not_stop_at_unreadable_rows(log: FakeLog) -> None:
    reader = stream(maxBytesPerBatch="1", failOnDataLoss="false")
    log.failures = [None, SinkLogError("rows 3 to 5 of trips/0 are damaged", DAMAGED, 5)]
    at = {"trips/0": 3, "trips/1": 1}
    at = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert at["trips/0"] == 5
    log.failures = [None, away()]
    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at  # nothing is known: asked again later
    assert reader.latestOffset(at, reader.getDefaultReadLimit())["trips/0"] == 9


@given(
    st.integers(0, 50),
    st.dictionaries(
        st.integers(0, 4), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30)), max_size=6), max_size=4
    ),
)
def test_whole_stored_batches_up_to_a_limit(most: int, partitions: dict[int, list[tuple[int, int]]]) -> None:
    offsets = {one: [0, *accumulate(rows for rows, _ in stored)] for one, stored in partitions.items()}
    found = ends_within(
        most,
        {
            one: iter(zip(offsets[one][1:], (size for _, size in stored), strict=True))
            for one, stored in partitions.items()
        },
    )
    counts = {one: offsets[one].index(end) for one, end in found.items()}
    sizes = [size for one, count in counts.items() for _, size in partitions[one][:count]]
    assert sum(sizes) <= most or len(sizes) == 1
    if any(partitions.values()):
        assert sizes, "it gets on"
    if sum(sizes) <= most:
        for one, stored in partitions.items():
            following = stored[counts.get(one, 0) :]
            assert not following or sum(sizes) + following[0][1] > most


def test_uncommitted_rows_are_for_display_only(log: FakeLog, capsys: pytest.CaptureFixture[str]) -> None:
    log.uncommitted = {0: 4}
    at = {"trips/0": 0, "trips/1": 0}
    assert stream().latestOffset(at, ReadAllAvailable()) == {"trips/0": 5, "trips/1": 1}
    assert capsys.readouterr().err == ""
    reader = stream(isolation="read-latest")
    end = reader.latestOffset(at, ReadAllAvailable())
    assert end == {"trips/0": 9, "trips/1": 1}
    assert len(rows_of(reader, reader.partitions(at, end))) == 10
    reader.latestOffset(end, ReadAllAvailable())
    assert capsys.readouterr().err.count("A recovery may take such rows back") == 1
    for isolation, rows in (("read-committed", 6), ("read-latest", 10)):
        table = BatchReader(parse_options({"sink": "trips", "isolation": isolation}), spark_schema(FIELDS))
        assert len(rows_of(table, table.partitions())) == rows
    log.stored[0], log.uncommitted = log.stored[0][:2], {}  # a recovery took them back
    with pytest.raises(OperationFailed, match=r"a recovery took back rows.*new checkpointLocation\."):
        reader.latestOffset(end, ReadAllAvailable())


def test_missing_rows_do_not_count_against_a_limit(log: FakeLog, capsys: pytest.CaptureFixture[str]) -> None:
    log.trim(0, 5)
    at = {"trips/0": 0, "trips/1": 1}
    for limit in ({"maxRowsPerBatch": "2"}, {"maxBytesPerBatch": "1"}):
        reader = stream(failOnDataLoss="false", **limit)
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        assert end["trips/0"] in (7, 9)
        assert ranges_of(reader.partitions(at, end))[0].start == 5
        assert "5 rows (0 to 5) of the sink trips/0 are gone" in capsys.readouterr().err
        strict = stream(**limit)
        with pytest.raises(OperationFailed, match=r"5 rows \(0 to 5\) of the sink trips/0 were removed"):
            strict.partitions(at, {"trips/0": 2, "trips/1": 1})  # planned before a restart: the whole gap is reported


def test_available_now_ends_at_the_initial_end(log: FakeLog) -> None:
    reader = stream(maxRowsPerBatch="6")
    reader.prepareForTriggerAvailableNow()
    log.append(1, [("p1", 1, 1.0)] * 50)
    at, seen = reader.initialOffset(), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        seen += rows_of(reader, reader.partitions(at, end))
        at = end
    assert at == {"trips/0": 9, "trips/1": 1}
    assert len(seen) == 10


def test_available_now_waits_for_an_agent_instead_of_ending_early(log: FakeLog) -> None:
    reader = stream(agentTimeout="60s")
    reader.prepareForTriggerAvailableNow()
    log.failures = [away(), SinkLogError("it has just started", UNKNOWN_SINK), away()]
    end = reader.latestOffset({"trips/0": 5, "trips/1": 1}, ReadAllAvailable())
    assert end == {"trips/0": 9, "trips/1": 1}
    log.failures = [away()]
    assert reader.latestOffset(end, ReadAllAvailable()) == end  # it has all rows, so it waits for none
    late = stream(agentTimeout="0s")
    late.prepareForTriggerAvailableNow()
    log.failures = [away()]
    with pytest.raises(SinkLogError, match="No agent answers"):
        late.latestOffset({"trips/0": 5, "trips/1": 1}, ReadAllAvailable())


def test_an_absent_agent_neither_fails_the_query_nor_loses_a_key(log: FakeLog) -> None:
    pauses: list[float] = []
    reader = StreamReader(parse_options({"sink": "trips"}), spark_schema(FIELDS), pause=pauses.append)
    log.failures = [away(), away()]
    at = {"trips/0": 5, "trips/1": 1}
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    assert reader.latestOffset(at, ReadAllAvailable()) == {"trips/0": 9, "trips/1": 1}
    assert len(pauses) == 2
    assert log.patience == [0.0, 0.0, 0.0]  # asked once each, with a new connection after a failure


def test_an_agent_that_keeps_refusing_ends_the_query(log: FakeLog) -> None:
    reader = stream(agentTimeout="0s")
    refusal = SinkLogError("this grant is for another sink", NOT_ALLOWED)
    log.failures = [refusal, refusal]
    at = {"trips/0": 5, "trips/1": 1}
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    with pytest.raises(SinkLogError, match="another sink"):
        reader.latestOffset(at, ReadAllAvailable())


def test_reading_survives_a_retry_without_a_duplicate(log: FakeLog) -> None:
    """The client looks for the agent again by itself; an error that it cannot repair ends the task, which Spark tries again."""
    reader = stream()
    log.answer_batches = 1
    log.failures = [None, None, away()]
    planned = reader.partitions({"trips/0": 0}, {"trips/0": 9})
    batches = reader.read(planned[0])
    with pytest.raises(SinkLogError):
        list(batches)
    assert len(rows_of(reader, planned)) == 9


def test_rows_removed_by_retention(log: FakeLog, capsys: pytest.CaptureFixture[str]) -> None:
    log.trim(0, 3)
    with pytest.raises(OperationFailed, match=r"3 rows \(0 to 3\) of the sink trips/0 were removed .*failOnDataLoss"):
        stream().partitions({"trips/0": 0, "trips/1": 0}, {"trips/0": 9, "trips/1": 1})
    reader = stream(failOnDataLoss="false")
    planned: Any = reader.partitions({"trips/0": 0, "trips/1": 0}, {"trips/0": 9, "trips/1": 1})
    assert [(one.start, one.end) for one in ranges_of(planned)] == [(3, 9), (0, 1)]
    assert "3 rows (0 to 3) of the sink trips/0 are gone" in capsys.readouterr().err


def test_rows_removed_between_planning_and_reading(log: FakeLog, capsys: pytest.CaptureFixture[str]) -> None:
    for loses, expected in (("false", [("p0", 5 + n) for n in range(4)]), ("true", None)):
        reader = stream(failOnDataLoss=loses)
        planned: Any = reader.partitions({"trips/0": log.first.get(0, 0)}, {"trips/0": 9})
        if expected is None:
            log.trim(0, 5)
            planned[0].ranges = (replace(planned[0].ranges[0], start=0),)
            with pytest.raises(OperationFailed, match="failOnDataLoss"):
                rows_of(reader, planned)
        else:
            log.trim(0, 5)
            assert rows_of(reader, planned) == expected
            assert "5 rows" in capsys.readouterr().err


def test_damaged_rows_are_an_error_or_skipped(log: FakeLog, capsys: pytest.CaptureFixture[str]) -> None:
    for loses in ("true", "false"):
        reader = stream(failOnDataLoss=loses)
        planned = reader.partitions({"trips/0": 0}, {"trips/0": 9})
        log.failures = [None, SinkLogError("rows 0 to 2 of trips/0 are damaged", DAMAGED, 3)]
        if loses == "true":
            with pytest.raises(SinkLogError, match="damaged"):
                rows_of(reader, planned)
        else:
            assert rows_of(reader, planned) == [("p0", number) for number in range(3, 9)]
            assert "3 rows" in capsys.readouterr().err


def test_a_restarted_log_is_detected(log: FakeLog) -> None:
    with pytest.raises(OperationFailed, match="new checkpointLocation"):
        stream().latestOffset({"trips/0": 900, "trips/1": 0}, ReadAllAvailable())
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(OperationFailed, match="new checkpointLocation"):
        reader.latestOffset({"trips/0": 900, "trips/1": 0}, ReadAllAvailable())
    planned = stream().partitions({"trips/0": 0}, {"trips/0": 9})
    log.stored[0] = log.stored[0][:2]
    with pytest.raises(OperationFailed, match="now ends at row 5"):
        rows_of(stream(), planned)
    log.stored[0] = [StoredBatch(0, 9, msgspec.msgpack.encode([("p0", 0, 1.0)]))]
    with pytest.raises(OperationFailed, match="damaged"):
        rows_of(stream(), planned)


def test_a_pickled_reader_holds_no_connection(log: FakeLog) -> None:
    reader: Any = stream()
    reader.latestOffset({"trips/0": 0, "trips/1": 0}, ReadAllAvailable())
    assert reader.__getstate__()["_logs"] is None
    assert reader._logs is not None
    reader.stop()
    assert reader._logs is None
    assert log.asked[-1] == "close"


def test_batches_have_the_type_that_spark_checks(log: FakeLog) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    reader = stream()
    schema = to_arrow_schema(spark_schema(FIELDS), timezone="UTC")
    for planned in reader.partitions({"trips/0": 1, "trips/1": 0}, {"trips/0": 8, "trips/1": 1}):
        for batch in reader.read(planned):
            assert isinstance(batch, pyarrow.RecordBatch)
            assert batch.schema.equals(schema)


def test_a_missing_token_is_reported_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("AGILEDART_TOKEN", raising=False)
    from pyspark_agiledart import connection

    with pytest.raises(ConfigurationError, match="token create --role reader --scope sink:trips"):
        connection.open_client(ReaderOptions("trips"), 0.0)
    with pytest.raises(OperationFailed, match="cannot be read"):
        connection.open_client(ReaderOptions("trips", token_file=str(tmp_path / "none")), 0.0)
    with pytest.raises(OperationFailed, match="cannot be read"):
        connection.open_client(ReaderOptions("trips", identity_file=str(tmp_path / "none")), 0.0)


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 1_000)), st.integers(0, 3_000))
def test_shares_are_fair(waiting: dict[int, int], budget: int) -> None:
    shares = fair_shares(waiting, budget)
    assert sum(shares.values()) <= budget
    assert all(0 <= shares[one] <= waiting[one] for one in waiting)
    left = [one for one in waiting if shares[one] < waiting[one]]
    if left:
        assert budget - sum(shares.values()) < len(waiting)
        assert all(shares[one] <= min(shares[other] for other in left) + 1 for one in left)


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 99)), st.dictionaries(st.integers(0, 5), st.integers(0, 99)))
def test_ends_never_go_back_and_never_drop_a_partition(start: dict[int, int], ends: dict[int, int]) -> None:
    for rows in (0, 7):
        found = admitted(start, ends, rows)
        assert set(found) == set(start) | set(ends)
        assert all(found[one] >= start[one] for one in start)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_row_is_read_once_under_any_faults(data: st.DataObject) -> None:
    """Random limits, growth, absences and restarts at a committed offset: every row exactly once, in order."""
    with pytest.MonkeyPatch.context() as patch, served(FakeLog(partitions=3), patch) as log:
        limit = data.draw(st.integers(0, 9))
        reader = stream(maxRowsPerBatch=str(limit), agentTimeout="1h")
        at = reader.initialOffset()
        got: list[tuple[str, int]] = []
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from(["grow", "batch", "batch", "away", "restart"])):
                case "grow":
                    partition, size = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 6))
                    first = log.end(partition)
                    log.append(partition, [(f"p{partition}", first + index, None) for index in range(size)])
                case "away":
                    log.failures = [away()]
                    assert reader.latestOffset(at, reader.getDefaultReadLimit()) == at
                    log.failures = []
                case "restart":
                    at, reader = json.loads(json.dumps(at)), stream(maxRowsPerBatch=str(limit))
                case _:
                    end = reader.latestOffset(at, reader.getDefaultReadLimit())
                    found = rows_of(reader, reader.partitions(at, end))
                    assert not limit or len(found) <= limit
                    got, at = got + found, end
        end = reader.latestOffset(at, ReadAllAvailable())
        got += rows_of(reader, reader.partitions(at, end))
        expected = [(f"p{p}", number) for p in range(3) for number in range(log.end(p))]
        assert Counter(got) == Counter(expected)
        for partition in range(3):
            mine = [number for name, number in got if name == f"p{partition}"]
            assert mine == sorted(mine)
