"""Rows without types: user code sees the JSON values, as lines, as CSV with a header, and as a NamedTuple would."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, col, collect, csv, jsonl, tumbling
from agiledart_connectors.codecs.dict_lines import DictLines
from agiledart_connectors.codecs.json_decoder import JsonDecoder
from agiledart_connectors.codecs.malformed_examples import MalformedError
from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.position import START
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_executor.local_runs.local_run import run_topology
from agiledart_kernel.errors import ConfigurationError, OperationFailed, TopologyError

Row = dict[str, Any]


class Reading(NamedTuple):
    at: datetime
    room: str
    celsius: float


ROWS = [
    {"at": f"2026-01-01T00:00:{second:02}", "room": "ab"[second % 2], "celsius": second / 2} for second in range(60)
]


def per_minute(connector: Any, rows: Any, parallelism: int = 1) -> list[Any]:
    """Warm readings of each room and ten seconds."""
    topology = Topology("t")
    source = topology.source("readings", connector, rows=rows, event_time="at")
    if rows is Reading:
        keyed = source.filter(lambda r: r.celsius > 3, "warm").key_by(lambda r: r.room)
    else:
        keyed = source.filter(lambda r: r["celsius"] > 3, "warm").key_by(lambda r: r["room"], returns=str)
    keyed.window(tumbling(timedelta(seconds=10))).count("n").sink("out", collect)
    return [tuple(row) for row in run_topology(topology, parallelism={"n": parallelism}).collected["out"]]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "in.jsonl").write_text(lines)
    cells = "".join(f"{row['celsius']},{row['at']},{row['room']}\n" for row in ROWS)
    (tmp_path / "in.csv").write_text("celsius,at,room\n" + cells)
    return {"jsonl": jsonl(str(tmp_path / "in.jsonl")), "csv": csv(str(tmp_path / "in.csv"))}


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_dict_rows_and_named_tuple_rows_give_the_same_results(
    form: str, parallelism: int, files: dict[str, Any]
) -> None:
    expected = per_minute(files["jsonl"], Reading)
    assert len(expected) == 12
    assert per_minute(files[form], Row, parallelism) == expected


def test_times_in_a_member_are_read_from_texts_and_numbers() -> None:
    topology = Topology("t")
    rows = [{"at": at} for at in ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", 1767225600, 1767225600_000)]
    topology.source("rows", rows, rows=Row, event_time="at").key_by(lambda r: 1, returns=int).window(
        tumbling(timedelta(seconds=1))
    ).count("n").sink("out", collect)
    (pane,) = run_topology(topology).collected["out"]
    assert (pane.start_ms, pane.value) == (1767225600_000, 4)


def test_an_array_of_objects_is_several_rows_and_other_values_are_malformed() -> None:
    decoder = JsonDecoder(Row)
    assert decoder.rows(b'[{"a":1},{"b":[1.5,null]}]', 0) == [{"a": 1}, {"b": [1.5, None]}]
    with pytest.raises(Exception, match="'7' is no object with names"):
        decoder.rows(b"7", 0)


def test_csv_numbers_are_inferred_and_007_stays_a_text() -> None:
    decoder = DictLines()
    assert decoder.takes_header("\ufeffa,b,c,d,e,f,g\n")
    (row,) = decoder.rows(b'1,-1.5,007,"x,y",,1_0,nan', 0)
    assert row == {"a": 1, "b": -1.5, "c": "007", "d": "x,y", "e": None, "f": "1_0", "g": "nan"}
    assert [type(value) for value in row.values()] == [int, float, str, str, type(None), str, str]
    with pytest.raises(Exception, match="has 1 column, the first line names 7"):
        decoder.rows(b"1", 0)
    for header in ("a,a", ",", ""):
        with pytest.raises(OperationFailed, match="should name the columns"):
            DictLines().takes_header(header)


@pytest.mark.parametrize(
    "cell", ["1e2", "10E1", "1.10", "inf", "-0", "1_0", "89490200001234567890", "0x1f", " 1", "1e400"]
)
def test_a_cell_that_is_not_written_as_its_number_stays_a_text(cell: str) -> None:
    decoder = DictLines()
    assert decoder.takes_header("id,v\n")
    assert decoder.rows(f"{cell},1".encode(), 0) == [{"id": cell, "v": 1}]


def test_cells_have_the_type_of_the_values() -> None:
    texts, numbers = DictLines(dict[str, str]), DictLines(dict[str, float])
    assert texts.takes_header("a,b")
    assert numbers.takes_header("a,b")
    assert texts.rows(b"1,", 0) == [{"a": "1", "b": ""}]
    assert numbers.rows(b"1,1e2", 0) == [{"a": 1.0, "b": 100.0}]
    with pytest.raises(MalformedError, match="b: 'x' is no finite number"):
        numbers.rows(b"1,x", 0)


def test_dict_rows_survive_encoding_and_values_that_would_change_are_refused() -> None:
    codec = BatchCodec(Row, "rows")
    rows = [{"a": 1, "b": [1.5, None, {"c": b"x", "d": True}]}]
    assert codec.decode(codec.encode(Batch(rows, None, START))).held == rows
    for value in (timedelta(1), (1, 2), {1: 2}, {1, 2}):
        with pytest.raises(TypeError, match="dict row"):
            codec.encode(Batch([{"a": value}], None, START))


def test_connectors_that_need_types_report_it() -> None:
    def stream() -> Any:
        return Topology("t").source("rows", [{"a": 1}], rows=Row)

    with pytest.raises(TopologyError, match=r"use a function, such as lambda row: row\['a'\]"):
        stream().where(col("a") > 1)
    with pytest.raises(TopologyError, match="returns=str"):
        stream().key_by(lambda r: r["a"])


@pytest.mark.parametrize("url", ["csv:out.csv", "parquet:out"])
def test_columnar_files_refuse_dict_rows(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if url.startswith("parquet"):
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    topology = Topology("t")
    topology.source("rows", [{"a": 1}], rows=Row).sink("out", parse_connector(url))
    with pytest.raises(ConfigurationError, match=r"rows that are dicts have no columns .* write jsonl:"):
        run_topology(topology)
