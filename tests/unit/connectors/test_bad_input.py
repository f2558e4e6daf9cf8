"""Messages about malformed input: place, field and value of the first of each reason; a header; the policy."""

import gzip
import socket
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

from agiledart import Alias, Topology, collect, csv, jsonl, null, records, tumbling
from agiledart_connectors.opening import open_source
from agiledart_dataflow.plan.connectors import REPORTED_PER_REASON, Connector
from agiledart_executor.local_runs.local_run import LocalRun, run_topology
from agiledart_kernel.errors import ConfigurationError, OperationFailed, TopologyError
from agiledart_kernel.limits import MAX_LINE_BYTES
from tests.ports import lasting_port

JANUARY = datetime.fromisoformat("2013-01-01 00:00:00")


class Reading(NamedTuple):
    """A row of several kinds."""

    room: str
    at: datetime
    celsius: int


class City(NamedTuple):
    """Measurements of Sense Your City, written in the usual way."""

    city: str
    celsius: Annotated[float, Alias("temperature")]
    air_quality: Annotated[float, Alias("airquality_raw")]


def told_of(connector: Any, rows: Any = Reading, **words: Any) -> tuple[LocalRun, list[str]]:
    """A run from a source to `collect`, and its messages to the user."""
    texts: list[str] = []
    topology = Topology("told")
    topology.source("readings", connector, rows=rows, **words).sink("out", collect)
    return run_topology(topology, on_log=texts.append), texts


def written(tmp_path: Path, text: str) -> str:
    """A file of this text."""
    path = tmp_path / "readings.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("a,2013-01-01 00:00:00,24.0", "celsius: '24.0' is no int"),
        ("a,2013-01-01T00:60:00,24", "at: '2013-01-01T00:60:00' is no time like 2013-01-31 08:00:00"),
        ("a,24", "2 columns, not 3 (room, at, celsius): 'a,24'"),
        ('"a"\rb,2013-01-01 00:00:00,1', "broken quotes, not 3 (room, at, celsius)"),
        ("a" * (MAX_LINE_BYTES + 2), "a line of more than 1,048,576 bytes"),
    ],
)
@pytest.mark.parametrize("good_before", [0, 3, 300])
def test_a_malformed_value_is_reported_with_place_field_and_value(
    line: str, told: str, good_before: int, tmp_path: Path
) -> None:
    good = "a,2013-01-01 00:00:00,24\n"
    run, texts = told_of(csv(written(tmp_path, good * good_before + line + "\n" + good)))
    assert run.summary.records_in == good_before + 2
    assert len(texts) == 1
    assert texts[0].startswith(f"readings: readings.csv:{good_before + 1} {told}")


def test_the_first_five_records_of_each_reason_are_reported_and_all_counted(tmp_path: Path) -> None:
    lines = ["a,2013-01-01 00:00:00,x", "a,b,1", "a"] * 1_000
    run, texts = told_of(csv(written(tmp_path, "\n".join(lines))))
    assert run.summary.malformed == {"columns": 1_000, "number": 1_000, "time": 1_000}
    assert run.useless_sources == ["readings"]
    assert [text.split()[1] for text in texts[:-1]] == [f"readings.csv:{i + 1}" for i in range(3 * REPORTED_PER_REASON)]
    assert texts[-1].startswith("readings: 3,000 of 3,000 records malformed")


def test_places_in_a_packed_file_with_a_header_can_be_looked_up(tmp_path: Path) -> None:
    path = tmp_path / "r.csv.gz"
    path.write_bytes(gzip.compress(b"celsius,Room,at\n1,a,2013-01-01 00:00:00\n1.5,a,2013-01-01 00:00:00\n"))
    run, texts = told_of(csv(str(path)))
    assert run.collected["out"] == [Reading("a", JANUARY, 1)]
    assert texts == [
        "readings: r.csv.gz: its first line names the columns, which are taken by name",
        "readings: r.csv.gz:3 celsius: '1.5' is no int",
    ]


def test_a_header_is_recognised_and_columns_are_taken_by_name(tmp_path: Path) -> None:
    line = "2015-03-26T21:55:00.000Z,Rio de Janeiro,32.5,4878,31.5\n"
    path = written(tmp_path, "timestamp,city,Temperature,light,Air Quality\n" + line * 2_000)
    run, texts = told_of(csv(path), City)
    assert run.collected["out"] == [City("Rio de Janeiro", 32.5, 31.5)] * 2_000
    assert run.summary.records_in == 2_000
    assert texts == [
        "readings: readings.csv: its first line names the columns, which are taken by name; 2 other columns are passed over"
    ]
    in_rows, _ = told_of(csv(path, header=True), City, check=lambda row: None)
    assert in_rows.collected == run.collected
    without, texts = told_of(csv(path, header=False), City)
    assert without.summary.malformed == {"columns": 2_001}
    assert "readings.csv:1 5 columns, not 3 (city, celsius, air_quality)" in texts[0]


def test_a_first_line_of_data_is_no_header(tmp_path: Path) -> None:
    run, texts = told_of(csv(written(tmp_path, "city,32.5,1\nb,1,1\n")), City)
    assert (len(run.collected["out"]), texts) == (2, [])


def test_a_row_that_a_check_refuses_is_reported_with_the_row() -> None:
    rows = [Reading("a", JANUARY, i) for i in range(20)]
    run, texts = told_of(records(rows), check=lambda row: "cold" if row.celsius < 10 else None)
    assert run.summary.malformed == {"cold": 10}
    assert texts[:-1] == [f"readings: cold: {row!r}" for row in rows[:5]]
    assert texts[-1] == "readings: 10 of 20 records malformed: 10 cold"


@pytest.mark.parametrize("columns", [False, True])
def test_one_malformed_record_may_end_the_run(tmp_path: Path, columns: bool) -> None:
    path = written(tmp_path, "a,2013-01-01 00:00:00,1\nb,2013-01-01 00:00:00,x\n")
    with pytest.raises(OperationFailed, match=r"malformed=fail allows none: readings.csv:2 celsius: 'x' is no int"):
        told_of(csv(path, malformed="fail"))
    with pytest.raises(OperationFailed, match=r"malformed=fail allows none: readings.csv:2 celsius: 'x' is no int"):
        told_of(csv(path), malformed="fail")
    run, _ = told_of(csv(path, malformed="fail"), malformed="count")  # the source's option overrides it
    assert sum(run.summary.malformed.values()) == 1
    with pytest.raises(TopologyError, match="malformed is one of count, fail, dead_letter, not 'forget'"):
        told_of(csv(path), malformed="forget")
    with pytest.raises(OperationFailed, match="malformed=fail allows none: cold: "):
        told_of(csv(written(tmp_path, "a,2013-01-01 00:00:00,1\n"), malformed="fail"), check=lambda row: "cold")
    with pytest.raises(ConfigurationError, match="malformed is one of count, fail, dead_letter, not 'skip'"):
        told_of(csv(path, malformed="skip"))


def letters_of(connector: Any, rows: Any = Reading, seed: int | None = None, **words: Any) -> LocalRun:
    """A run from a source whose malformed records are dead letters."""
    topology = Topology("letters")
    source = topology.source("readings", connector, rows=rows, malformed="dead_letter", **words)
    source.sink("out", collect)
    source.errors("broken").sink("letters", collect)
    return run_topology(topology, schedule_seed=seed)


MIXED = 'a,2013-01-01 00:00:00,1\nb,2013-01-01 00:00:01,x\n"c"\ra,2013-01-01 00:00:02,2\na,2013-01-01 00:00:03,3\n'


@pytest.mark.parametrize("header", [None, False])
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_malformed_records_become_dead_letters_unchanged(tmp_path: Path, header: bool | None, seed: int | None) -> None:
    run = letters_of(csv(written(tmp_path, MIXED * 100), header=header), event_time="at", seed=seed)
    letters = sorted(run.collected["letters"], key=lambda letter: letter.record)
    assert [letter.record for letter in letters] == ['"c"\ra,2013-01-01 00:00:02,2'] * 100 + [
        "b,2013-01-01 00:00:01,x"
    ] * 100
    assert letters[-1].step == "readings"
    assert {letter.error for letter in letters if letter.record[0] == "b"} == {
        f"readings.csv:{4 * i + 2} celsius: 'x' is no int" for i in range(100)
    }
    assert run.summary.malformed == {"columns": 100, "number": 100}
    assert len(run.collected["out"]) + run.summary.late == 200


@pytest.mark.parametrize("event_time", [None, "at"])
def test_an_entirely_malformed_input_becomes_dead_letters(tmp_path: Path, event_time: str | None) -> None:
    run = letters_of(csv(written(tmp_path, "a,b\n" * 5_000)), event_time=event_time)
    assert [letter.record for letter in run.collected["letters"]] == ["a,b"] * 5_000
    assert run.useless_sources == ["readings"]


def test_dead_letters_have_times_that_a_window_accepts(tmp_path: Path) -> None:
    topology = Topology("letters")
    source = topology.source(
        "readings", csv(written(tmp_path, MIXED)), rows=Reading, event_time="at", malformed="dead_letter"
    )
    source.sink("out", null())
    source.errors("broken").key_by(lambda letter: letter.step, returns=str).window(tumbling(timedelta(hours=1))).count(
        "broken-an-hour"
    ).sink("counts", collect)
    (pane,) = run_topology(topology).collected["counts"]
    assert pane.value == 2


def test_a_row_that_a_check_refuses_may_become_a_dead_letter() -> None:
    rows = [Reading("a", JANUARY, i) for i in range(20)]
    run = letters_of(records(rows), check=lambda row: "cold" if row.celsius < 10 else None)
    assert [(letter.record, letter.error) for letter in run.collected["letters"]] == [
        (repr(row), "cold") for row in rows[:10]
    ]


def test_a_record_of_another_format_is_a_dead_letter_too(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    good, lines = b'{"room":"a","at":0,"celsius":1}', [b"{", b'{"room":1}', b"\xff", b"[" * 70_000]
    path.write_bytes(b"\n".join([good, *lines, good]))
    run = letters_of(jsonl(str(path)))
    assert [letter.record for letter in run.collected["letters"]] == ["{", '{"room":1}', "\\xff", "[" * 65_536 + " …"]
    assert len(run.collected["out"]) == 2


def test_dead_letters_need_to_be_enabled(tmp_path: Path) -> None:
    topology = Topology("letters")
    source = topology.source("readings", csv(written(tmp_path, MIXED)), rows=Reading)
    with pytest.raises(
        TopologyError, match=r"""'readings' keeps no dead letters: give source\(\) malformed="dead_letter\""""
    ):
        source.errors("broken")
    by_option = topology.source("others", csv(written(tmp_path, MIXED), malformed="dead_letter"), rows=Reading)
    by_option.errors("broken").sink("letters", collect)
    source.union(by_option, name="both").sink("out", collect)
    assert len(run_topology(topology).collected["letters"]) == 2


def test_lines_of_a_connection_are_reported_with_their_number(unused_tcp_port: int) -> None:
    reader = open_source(Connector("tcp", f"127.0.0.1:{unused_tcp_port}", (("listen", "1"),)), Reading)
    with socket.create_connection(("127.0.0.1", unused_tcp_port)) as peer:
        peer.sendall(b"a,2013-01-01 00:00:00,1\nb,2013-01-01 00:00:00,x\n" + b"a" * (MAX_LINE_BYTES + 9))
    notes: list[str] = []
    lines = 0
    while True:
        reading = reader.read(100, 0)
        notes += reading.notes
        lines += reading.lines
        if reading.exhausted:
            break
    reader.close()
    name = f"tcp:127.0.0.1:{unused_tcp_port}"
    assert notes == [f"{name}:2 celsius: 'x' is no int", f"{name}:3 a line of more than 1,048,576 bytes"]


@pytest.fixture
def unused_tcp_port() -> int:
    return lasting_port()
