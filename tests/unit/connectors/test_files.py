"""Files as sources: lines, JSON, folders and patterns, files that grow and are rotated; sinks that roll their files."""

import gzip
import io
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from agiledart import ConfigurationError, OperationFailed, Topology, collect, csv, jsonl, lines, parquet, records
from agiledart_connectors.codecs.lines import BLOCK_BYTES
from agiledart_connectors.opening import open_sink, open_source
from agiledart_dataflow.plan.connectors import Connector, parse_connector
from agiledart_executor.local_runs.local_run import run_topology


class Row(NamedTuple):
    """A row."""

    a: int
    b: str


ROWS = [Row(i, f"text {i}") for i in range(2_000)]


def passed(source: Any, sink: Any = collect, rows: Any = Row) -> Any:
    """Rows that come from a source to a sink."""
    topology = Topology("passing")
    topology.source("rows", source, rows=rows).sink("out", sink)
    return run_topology(topology)


def json_lines(rows: list[Row]) -> str:
    return "".join(f'{{"b": "{row.b}", "a": {row.a}}}\n' for row in rows)


def csv_lines(rows: list[Row]) -> str:
    return "".join(f"{row.a},{row.b}\n" for row in rows)


class Follower:
    """A reader whose readings a test gathers; it must end up with as many rows as are said to come."""

    def __init__(self, url: str, kind: Any = Row) -> None:
        self.reader = open_source(parse_connector(url), kind)
        self.rows: list[Any] = []
        self.notes: list[str] = []

    def until(self, count: int) -> list[Any]:
        """Read until there are so many; waits by the reader's own descriptor."""
        while len(self.rows) < count:
            reading = self.reader.read(100, 0)
            assert not reading.exhausted
            self.rows += reading.rows
            self.notes += reading.notes
            if not reading.lines:
                number = self.reader.fileno()  # type: ignore[attr-defined]
                assert number is not None
                assert select.select([number], [], [], 20)[0], "no event announced that the file grew"
        assert not self.reader.read(100, 0).lines
        assert len(self.rows) == count
        return self.rows


def test_a_json_file_is_read_plain_packed_and_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    text = json_lines(ROWS)
    plain.write_text(text + "\n\n")
    packed.write_bytes(gzip.compress(text.replace("\n", "\r\n").encode()))
    for path in (plain, packed):
        done = passed(jsonl(str(path)))
        assert (done.collected["out"], done.summary.records_in) == (ROWS, len(ROWS))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(text.encode()))))
    assert passed(jsonl("-")).collected["out"] == ROWS


def test_plain_lines_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('one, "two\n{"a": 1, "b": "x"}\nlast')
    assert passed(lines(str(path)), rows=str).collected["out"] == ['one, "two', '{"a": 1, "b": "x"}', "last"]
    done = passed(lines(str(path), format="json"))
    assert done.collected["out"] == [Row(1, "x")]
    assert done.summary.malformed == {"form": 2}


def test_malformed_json_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json_lines(ROWS) + '\n{"a": "7", "b": ""}\n{"a":\n1}\n' + json_lines(ROWS[:3]))
    topology = Topology("told")
    topology.source("rows", jsonl(str(path)), rows=Row).sink("out", collect)
    told: list[str] = []
    done = run_topology(topology, on_log=told.append)
    assert done.collected["out"] == ROWS + ROWS[:3]
    assert done.summary.malformed == {"form": 1, "type": 2}
    assert told == [
        "rows: r.jsonl:2002 a: '7' is no int",
        "rows: r.jsonl:2003 is no JSON (Input data was truncated): '{\"a\":'",
        "rows: r.jsonl:2004 '1}' is no object with names",
    ]


@pytest.mark.parametrize(("make", "text"), [(jsonl, json_lines), (csv, csv_lines)])
def test_a_folder_and_a_pattern_are_read(make: Any, text: Callable[[list[Row]], str], tmp_path: Path) -> None:
    for number, name in enumerate(("b.in", "a.in", "c.in", ".hidden.in", "d.in.part")):
        part = ROWS[500 * number : 500 * number + 500]
        (tmp_path / name).write_text(("a,b\n" if make is csv else "") + text(part))
    (tmp_path / "sub").mkdir()
    expected = ROWS[500:1_000] + ROWS[:500] + ROWS[1_000:1_500]
    for path in (tmp_path, tmp_path / "*.in", tmp_path / "[abc].in"):
        done = passed(make(str(path)))
        assert done.collected["out"] == expected
        assert done.summary.records_in == len(expected)
    with pytest.raises(OperationFailed, match="no such file"):
        passed(make(str(tmp_path / "*.none")))


def test_places_are_found_in_several_files(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,x\ny,x\n")
    (tmp_path / "2.csv").write_text("z,x\n")
    topology = Topology("told")
    topology.source("rows", csv(str(tmp_path)), rows=Row).sink("out", collect)
    told: list[str] = []
    run_topology(topology, on_log=told.append)
    assert told[1:] == [
        "rows: 1.csv:3 a: 'y' is no int",
        "rows: 2.csv: its first line names no columns, unlike the file before; they are taken in the order of the fields",
        "rows: 2.csv:1 a: 'z' is no int",
    ]


@pytest.mark.parametrize(("kind", "text"), [("jsonl", json_lines), ("csv", csv_lines)])
def test_a_followed_file_may_grow_be_truncated_or_rotated(
    kind: str, text: Callable[[list[Row]], str], tmp_path: Path
) -> None:
    path = tmp_path / "live.log"
    follower = Follower(f"{kind}:{path}?follow=1")
    follower.until(0)
    with path.open("w") as file:
        file.write(text(ROWS[:10]))
        file.flush()
        follower.until(10)
        whole = text(ROWS[10:11])
        file.write(whole[:5])
        file.flush()
        follower.until(10)
        file.write(whole[5:])
        file.flush()
        follower.until(11)
        os.rename(path, tmp_path / "live.log.1")
        file.write(text(ROWS[11:12]))  # its writer has not noticed yet
        file.flush()
        follower.until(12)
        path.write_text(text(ROWS[12:14]))
        follower.until(14)
        file.write(text(ROWS[14:15]))
        file.flush()
        follower.until(15)
    path.write_text(text(ROWS[15:16]))
    assert follower.until(16) == ROWS[:16]
    assert follower.notes[-1] == "live.log is shorter than what was read of it: it is read from its beginning"
    with path.open("a") as file:
        file.write("nonsense\n")
    assert follower.reader.read(100, 0).notes[0].startswith("live.log:2 ")
    follower.reader.close()
    follower.reader.close()


def test_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json_lines(ROWS[:1]))
    follower = Follower(f"jsonl:{tmp_path}/*.jsonl?follow=1")
    follower.until(1)
    packed = tmp_path / "moving.part"
    packed.write_bytes(gzip.compress(json_lines(ROWS[1:3]).encode()))
    packed.rename(tmp_path / "b.jsonl")
    follower.until(3)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(json_lines(ROWS[3:4]))
    follower.until(4)
    os.rename(tmp_path / "a.jsonl", tmp_path / "z.jsonl")
    (tmp_path / "c.jsonl").write_text(json_lines(ROWS[4:]))
    assert follower.until(len(ROWS)) == ROWS
    follower.reader.close()


def test_a_followed_line_may_exceed_a_block(tmp_path: Path) -> None:
    path = tmp_path / "x"
    long = "x" * (3 * BLOCK_BYTES)
    path.write_text(f"{long}\nshort\n")
    follower = Follower(f"lines:{path}?follow=1", str)
    assert follower.until(2) == [long, "short"]
    follower.reader.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("jsonl:-?follow=1", "standard input cannot be followed"),
        ("jsonl:x?follow=yes", "follow is 0 or 1"),
        ("csv:x?format=msgpack", "msgpack does not come in lines"),
        ("jsonl:x?header=1&format=jsom", "Did you mean json"),
    ],
)
def test_invalid_file_options_are_rejected(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_source(parse_connector(url), Row)
    with pytest.raises(OperationFailed, match="there is no folder"):
        open_source(parse_connector("csv:/none/of/it?follow=1"), Row)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_sink_rolls_its_files_and_renames_only_whole_ones(kind: str, tmp_path: Path) -> None:
    url = parse_connector(f"{kind}:{tmp_path}/out.{kind}?roll_bytes=4KiB")
    for half in (ROWS[:1_000], ROWS[1_000:]):
        writer = open_sink(url, Row)
        for start in range(0, len(half), 100):
            writer.write(half[start : start + 100])
            writer.flush()
            written = sorted(one.name for one in tmp_path.iterdir())
            assert sum(name.endswith(".part") for name in written) <= 1
        writer.close()
        writer.close()
    names = sorted(one.name for one in tmp_path.iterdir())
    assert names[0] == f"out-00001.{kind}"
    assert not any(name.endswith(".part") for name in names)
    assert len(names) == 2 if kind == "parquet" else len(names) > 5
    assert passed(Connector(kind, str(tmp_path))).collected["out"] == ROWS


def test_a_file_is_rolled_by_age_even_without_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr("time.monotonic_ns", lambda: now)
    for kind in ("jsonl", "parquet"):
        writer = open_sink(parse_connector(f"{kind}:{tmp_path}/x.{kind}?roll_age=1m"), Row)
        writer.write(ROWS[:10])
        writer.flush()
        assert not list(tmp_path.glob(f"*.{kind}"))
        now += 60_000_000_000
        writer.flush()
        assert [one.name for one in tmp_path.glob(f"*.{kind}")] == [f"x-00001.{kind}"]
        writer.close()
        assert len(list(tmp_path.glob(f"x-*.{kind}*"))) == 1


def test_a_parquet_file_has_all_rows_or_is_empty(tmp_path: Path) -> None:
    for rows in (ROWS, []):
        passed(records(rows, row_type=Row), parquet(str(tmp_path / "out.parquet")))
        assert passed(parquet(str(tmp_path / "out.parquet"))).collected["out"] == rows


def test_an_unwritable_sink_is_reported(tmp_path: Path) -> None:
    for kind in ("jsonl", "parquet", "csv"):
        with pytest.raises(OperationFailed, match="no such file or directory"):
            passed(records(ROWS, row_type=Row), parse_connector(f"{kind}:{tmp_path}/none/x?roll_bytes=1MiB"))
