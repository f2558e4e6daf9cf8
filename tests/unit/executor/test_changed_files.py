"""Files of an exactly-once run that somebody else replaced, cut or wrote to: they are refused, with the path and what to do."""

import asyncio
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_dataflow.plan.connectors import Connector
from agiledart_executor.connectors.log_sink import Kept, SinkOrigin
from agiledart_executor.connectors.opening import open_sink, open_source
from agiledart_executor.epochs import Epochs
from agiledart_executor.going_back import Resumed
from agiledart_executor.running_instance import Running
from agiledart_kernel.errors import OperationFailed


class Row(NamedTuple):
    at: int
    value: int


def sink(path: Path, end: int | None) -> Any:
    keep = None if end is None else Kept((end,))
    return open_sink(Connector("csv", str(path)), Row, origin=SinkOrigin("job", 1, path.parent, 0.0, True, keep))


def test_an_output_that_is_shorter_than_what_was_committed_is_refused(tmp_path: Path) -> None:
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


def test_an_output_that_somebody_has_written_to_is_cut_back_to_what_was_committed(tmp_path: Path) -> None:
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


def test_an_input_with_fewer_lines_than_were_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1,1\n" * 30)
    reader = open_source(Connector("csv", str(path)), Row)
    clock = itertools.count().__next__
    with pytest.raises(OperationFailed, match="it has only 30 lines, and 31 had been read: it was replaced or cut"):
        Resumed(reader, 31, clock)
    reader.close()


def test_an_input_that_was_replaced_between_two_lives_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("1,1\n" * 30)
    source = Running(0, 0, "readings")

    async def play() -> None:
        def life(run: int = 7) -> Epochs:
            return Epochs(tmp_path / "run", run, 1, lambda stage: ("readings",), lambda told: None)

        life().keep_beginning_of_file(source, str(path))
        path.write_text("1,1\n" * 31)
        life().keep_beginning_of_file(source, str(path))
        path.write_text("2,1\n" * 31)
        with pytest.raises(OperationFailed, match=rf"readings: {path} begins in another way than it did"):
            life().keep_beginning_of_file(source, str(path))
        life(8).keep_beginning_of_file(source, str(path))
        path.write_text("2,1\n")
        with pytest.raises(OperationFailed, match=rf"readings: {path} is shorter than it was"):
            life(8).keep_beginning_of_file(source, str(path))

    asyncio.run(play())
