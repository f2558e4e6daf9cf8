"""Files of an exactly-once run that were modified from outside are refused, with the path and a fix."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_connectors.files.seals import HEAD_BYTES, TAIL_BYTES
from agiledart_connectors.opening import open_sink, open_source
from agiledart_connectors.sink_origin import CommittedOutput, SinkOrigin
from agiledart_dataflow.plan.connectors import Connector
from agiledart_executor.checkpointing.instance_checkpointer import InstanceCheckpointer
from agiledart_executor.checkpointing.source_rewind import FastForwardedReader
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_kernel.errors import OperationFailed


class Row(NamedTuple):
    at: int
    value: int


def sink(path: Path, end: int | None, place: str = "") -> Any:
    keep = None if end is None else CommittedOutput((end,), place)
    return open_sink(Connector("csv", str(path)), Row, origin=SinkOrigin("job", 1, path.parent, 0.0, True, keep))


def test_an_output_shorter_than_its_committed_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    writer = sink(path, None)
    writer.write([Row(number, number) for number in range(10)])
    (end,) = writer.prepare()
    writer.close()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        OperationFailed, match=rf"{path} has {end - 1} bytes, and {end} were committed: somebody has changed"
    ):
        sink(path, end)
    assert path.stat().st_size == end - 1, "nothing of it is changed"


def test_a_modified_output_is_truncated_to_its_committed_length(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    writer = sink(path, None)
    writer.write([Row(1, 1)])
    (end,) = writer.prepare()
    writer.close()
    with path.open("ab") as file:
        file.write(b"from elsewhere\n")
    again = sink(path, end)
    again.write([Row(2, 2)])
    again.prepare()
    again.close()
    assert path.read_text() == "1,1\n2,2\n"


def written(path: Path, rows: int) -> tuple[int, str]:
    """A file with so many committed rows: its end, and its description in the snapshot."""
    writer = sink(path, None)
    writer.write([Row(number, number) for number in range(rows)])
    (end,) = writer.prepare()
    place = writer.place
    writer.close()
    return end, place


@pytest.mark.parametrize(
    ("rows", "at", "said"),
    [
        (10, 3, "begins in another way than what was committed"),
        (50_000, HEAD_BYTES - 1, "begins in another way than what was committed"),
        (50_000, -1, "is another one before its committed end"),
        (50_000, -TAIL_BYTES, "is another one before its committed end"),
    ],
)
def test_a_modified_output_of_the_same_length_is_refused(tmp_path: Path, rows: int, at: int, said: str) -> None:
    path = tmp_path / "out.csv"
    end, place = written(path, rows)
    changed = bytearray(path.read_bytes())
    changed[at] ^= 1
    path.write_bytes(changed)
    with pytest.raises(OperationFailed, match=rf"{path} {said}.*: somebody has changed it. Put it back, or submit"):
        sink(path, end, place)
    assert path.read_bytes() == changed, "nothing of it is changed"


def test_bytes_after_an_outputs_committed_end_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    end, place = written(path, 10)
    with path.open("ab") as file:
        file.write(b"rows of an epoch that was not committed\n")
    again = sink(path, end, place)
    again.write([Row(10, 10)])
    again.prepare()
    again.close()
    assert path.read_text() == "".join(f"{number},{number}\n" for number in range(11))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: path.write_text("9,9\n"), "begins in another way than what was committed"),
        (lambda path: path.unlink(), "is gone: somebody has removed or renamed it"),
        (lambda path: path.rename(path.with_name("out.1")), "is gone: somebody has removed or renamed it"),
        (lambda path: (path.unlink(), path.write_text("")), "is another file now: somebody has put it there"),
    ],
    ids=["changed", "removed", "renamed", "replaced"],
)
def test_no_epoch_is_prepared_in_a_modified_output(tmp_path: Path, harm: Callable[[Path], object], said: str) -> None:
    """Otherwise committed rows would be in a file without a name, or behind foreign rows."""
    path = tmp_path / "out.csv"
    writer = sink(path, None)
    writer.write([Row(1, 1)])
    writer.prepare()
    harm(path)
    writer.write([Row(2, 2)])
    with pytest.raises(OperationFailed, match=rf"{path} {said}"):
        writer.prepare()
    writer.close()


def test_an_output_prepared_by_an_older_version_is_checked_by_length(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    end, _ = written(path, 10)
    for place in ("", "sealed by another version"):
        sink(path, end, place).close()


def test_an_input_with_fewer_lines_than_were_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1,1\n" * 30)
    reader = open_source(Connector("csv", str(path)), Row)
    clock = itertools.count().__next__
    with pytest.raises(OperationFailed, match="it has only 30 lines, and 31 had been read: it was replaced or cut"):
        FastForwardedReader(reader, 31, clock)
    reader.close()


def test_an_input_replaced_between_two_attempts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1,1\n" * 30)
    source = RunningInstance(0, 0, "readings")

    async def play() -> None:
        def attempt(run: int = 7) -> InstanceCheckpointer:
            return InstanceCheckpointer(tmp_path / "run", run, 1, lambda stage: ("readings",), lambda told: None)

        attempt().records.keep_file_fingerprint(source, str(path))
        path.write_text("1,1\n" * 31)
        attempt().records.keep_file_fingerprint(source, str(path))
        path.write_text("2,1\n" * 31)
        with pytest.raises(OperationFailed, match=rf"readings: {path} begins in another way than it did"):
            attempt().records.keep_file_fingerprint(source, str(path))
        attempt(8).records.keep_file_fingerprint(source, str(path))
        path.write_text("2,1\n")
        with pytest.raises(OperationFailed, match=rf"readings: {path} is shorter than it was"):
            attempt(8).records.keep_file_fingerprint(source, str(path))

    asyncio.run(play())
