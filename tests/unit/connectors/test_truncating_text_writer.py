"""Files of runs that are saved by epochs: nothing is lost when the disk is full for a while, and one process writes at a time."""

import errno
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart_connectors.files import text_writer
from agiledart_connectors.opening import open_sink
from agiledart_connectors.sink_origin import CommittedOutput, SinkOrigin
from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_kernel.errors import BusyError, OperationFailed


class Row(NamedTuple):
    """A row."""

    n: int


def opened(path: Path, keep: CommittedOutput | None = None) -> Any:
    return open_sink(parse_connector(f"csv:{path}"), Row, origin=SinkOrigin(by_epoch=True, keep=keep))


def test_a_run_with_another_runs_state_appends_after_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("1\n2\n")

    def again(keep: CommittedOutput | None) -> Any:
        return open_sink(
            parse_connector(f"csv:{path}"), Row, origin=SinkOrigin(by_epoch=True, keep=keep, continues_run=True)
        )

    sink = again(None)
    assert sink.prepare() == (4,)
    sink.write([Row(3)])
    sink.flush()
    sink.close()
    sink = again(CommittedOutput((4,)))  # it was restarted before its first epoch
    sink.write([Row(3)])
    sink.flush()
    assert sink.prepare() == (6,)
    sink.close()
    assert path.read_text() == "1\n2\n3\n"


def brought(path: Path, rows: int) -> str:
    """Saved state of a sink that wrote so many rows into a file of this path, on another node."""
    elsewhere = opened(path)
    elsewhere.write([Row(n) for n in range(rows)])
    elsewhere.prepare()
    place = str(elsewhere.place)
    elsewhere.close()
    return place


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("1\n2\n", "begins in another way"),
        ("0\n", "has 2 bytes, and 6 were committed"),
    ],
)
def test_a_restored_run_does_not_continue_in_another_file_of_that_name(tmp_path: Path, there: str, said: str) -> None:
    """It was restored on another node, or a user has put a file there."""
    path = tmp_path / "out.csv"
    place = brought(path, 3)
    path.write_text(there * 3 if len(there) > 2 else there)
    content = path.read_text()
    keep = CommittedOutput((len(content),), place, is_from_other_run=True)
    with pytest.raises(
        OperationFailed, match=f"cannot begin with what the checkpoint holds of it.*{said}.*move this one away"
    ):
        open_sink(parse_connector(f"csv:{path}"), Row, origin=SinkOrigin(by_epoch=True, keep=keep, continues_run=True))
    assert path.read_text() == content


def test_a_restored_run_that_truncates_its_file_reports_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, other = tmp_path / "out.csv", tmp_path / "other.csv"
    place = brought(path, 3)
    path.unlink()
    other.write_text("7\n")
    for file, end in ((path, 0), (other, 2)):
        keep = CommittedOutput((end,), place, is_from_other_run=True)
        origin = SinkOrigin(by_epoch=True, keep=keep, continues_run=True)
        open_sink(parse_connector(f"csv:{file}"), Row, origin=origin).close()
    told = capsys.readouterr().err
    assert told == f"{path} begins anew here: the 6 bytes before them are where the run of the checkpoint wrote them\n"
    assert other.read_text() == "7\n", "rows given on purpose stay"


def test_a_restored_run_appends_after_rows_its_file_has_gained(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    place = brought(path, 3)
    with path.open("a") as file:
        file.write("3\n")
    keep = CommittedOutput((8,), place, is_from_other_run=True)
    origin = SinkOrigin(by_epoch=True, keep=keep, continues_run=True)
    sink: Any = open_sink(parse_connector(f"csv:{path}"), Row, origin=origin)
    sink.write([Row(4)])
    assert sink.prepare() == (10,)
    sink.close()


@pytest.fixture
def full_at() -> Iterator[Any]:
    """Makes files of this process end at a size, as a full disk does: in the middle of a line, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def test_rows_that_a_full_disk_refused_come_with_a_later_epoch(tmp_path: Path, full_at: Any) -> None:
    path = tmp_path / "out.csv"
    sink = opened(path)
    sink.write([Row(1_000)])
    sink.flush()
    assert sink.prepare() == (5,)
    full_at(12)
    sink.write([Row(2_000), Row(3_000)])
    sink.flush()
    assert path.read_bytes() == b"1000\n2000\n30", "bytes that fitted, in the middle of a line"
    with pytest.raises(OperationFailed, match=r"out\.csv cannot be written: file too large"):
        sink.prepare()
    sink.write([Row(4_000)])
    sink.flush()
    full_at(1 << 20)
    assert sink.prepare() == (20,)
    assert path.read_text() == "1000\n2000\n3000\n4000\n"
    sink.write([Row(5_000)])
    sink.flush()
    assert path.read_text().endswith("5000\n"), "visible at once again"
    sink.close()


def test_waiting_rows_are_bounded(tmp_path: Path, full_at: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_writer, "MAX_WAITING_BYTES", 100)
    sink = opened(tmp_path / "out.csv")
    full_at(0)
    sink.write([Row(1_000)])
    sink.flush()
    sink.write([Row(n) for n in range(1_000, 1_030)])
    with pytest.raises(OperationFailed, match=os.strerror(errno.EFBIG).lower()):
        sink.flush()


def test_one_process_writes_and_the_next_truncates_once_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    before = opened(path)
    before.write([Row(1)])
    ends = before.prepare()
    for keep in (CommittedOutput(ends), None):
        with pytest.raises(BusyError, match=r"out\.csv is being written by another process"):
            opened(path, keep)
    before.write([Row(2)])
    before.close()
    assert path.read_text() == "1\n2\n"
    after = opened(path, CommittedOutput(ends))
    assert path.read_text() == "1\n"
    after.write([Row(3)])
    assert after.prepare() == (4,)
    after.close()
    assert path.read_text() == "1\n3\n"
