"""Sinks that write lines: `csv:`, `jsonl:`, `stdout:`."""

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from agiledart_connectors.codecs.decoder_options import csv_form
from agiledart_connectors.codecs.dict_lines import reject_dict_rows
from agiledart_connectors.codecs.rendering import CsvForm, columns_of, json_of
from agiledart_connectors.files.appended_file import AppendedFile
from agiledart_connectors.files.pending_files import PendingFiles, pending_files
from agiledart_connectors.files.rolled_files import RolledFiles
from agiledart_connectors.files.seals import (
    Seal,
    SealedFile,
    check_name,
    check_seal,
    fault_of,
    parse_sealed_file,
    seal_of,
)
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.options import SIZES, SPANS_MS, quantity
from agiledart_connectors.rejections import RejectsRows, rendered_rows
from agiledart_connectors.sink_origin import CommittedOutput
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.schema import is_dict
from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.deployment import DOES_NOT_FIT
from agiledart_kernel.errors import ConfigurationError, OperationFailed, RollBackNeeded, system_text
from agiledart_sink_log.writer_lock import claim

_BUFFERED_BYTES = 64 << 10

MAX_WAITING_BYTES = 16 << 20
"""Lines of a run saved by epochs that wait while a disk is full: some minutes of a sensor's rows. Beyond it the run ends."""

Render = Callable[[Any, int], bytes]


class TextWriter(RejectsRows):
    """Writes each row as a line.

    Raises:
        OperationFailed: the file cannot be opened or written; the message has the path.
    """

    def __init__(
        self,
        file: BinaryIO | None,
        name: str,
        render: Render,
        times: LatencyRecorder,
        *,
        owned: bool,
        files: RolledFiles | None = None,
    ) -> None:
        RejectsRows.__init__(self)
        self._file = file
        self._files = files
        self._in_file = 0
        self._name = name
        self._render = render
        self._times = times
        self._owned = owned
        self._closed = False
        self._lines: list[bytes] = []
        self._bytes = 0

    def write(self, rows: list[Any]) -> None:
        now = self._times.count(rows)
        lines = rendered_rows(rows, now, self._render, self.rejections)
        self._lines += lines
        self._bytes += sum(map(len, lines))
        if self._bytes >= _BUFFERED_BYTES:
            self._hand_over()

    def _hand_over(self) -> None:
        lines, written, self._lines, self._bytes = self._lines, self._bytes, [], 0
        if self._file is None and self._files is not None and not self._closed:
            self._file, self._in_file = self._files.begin(), 0
        if self._file is None:
            return
        try:
            self._file.write(b"".join(lines))
            self._in_file += written
        except (OSError, ValueError) as error:
            raise OperationFailed(f"{self._name} cannot be written: {_reason(error)}") from None

    def flush(self) -> None:
        if self._lines:
            self._hand_over()
        if self._file is None:
            return
        try:
            self._file.flush()
        except (OSError, ValueError) as error:
            raise OperationFailed(f"{self._name} cannot be written: {_reason(error)}") from None
        if self._files is not None and self._files.is_whole(self._in_file):
            self._end_file()

    def _end_file(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._files is not None:
            self._files.end(file)

    def close(self) -> None:
        if self._files is not None:
            if not self._closed:
                self.flush()
                self._closed = True
                self._end_file()
            return
        if self._file is None:
            return
        file = self._file
        try:
            self.flush()
        finally:
            self._file = None
            if self._owned:
                with contextlib.suppress(OSError):  # closing flushes again; the error was reported before
                    file.close()

    @property
    def latency(self) -> LatencyHistogram:
        return self._times.histogram


class TruncatingTextWriter(TextWriter):
    """Text writer of a run that is saved by epochs: rows are visible at once, and the file is cut back to the committed end.
    `_reopened` cuts it.

    Lines that the disk refuses stay in memory, up to a bound: the epoch fails, and the next one tries again. The same holds where
    another program has changed the file, or taken its name, since the last epoch. Where only rows since that epoch are lost, by
    such a change or by the disk, the run rolls back to it.

    Args:
        seal: of the committed part of the file.

    Attributes:
        emits_at_once: a restart does not cut written rows back.
    """

    def __init__(
        self,
        file: io.FileIO,
        seal: Seal,
        name: str,
        render: Render,
        times: LatencyRecorder,
        *,
        emits_at_once: bool = False,
    ) -> None:
        super().__init__(file, name, render, times, owned=True)
        self._raw, self._is_full, self._seal, self.emits_at_once = file, False, seal, emits_at_once
        self._written = AppendedFile(file, name)

    @property
    def place(self) -> str:
        """Return the file's state at the last epoch, for the sink that opens it again."""
        return SealedFile(os.path.abspath(self._name), self._seal).text

    def _hand_over(self) -> None:
        if not self._is_full:
            with contextlib.suppress(OperationFailed):  # `prepare` says it
                self._put()
        if self._bytes > MAX_WAITING_BYTES:
            self._put()

    def _put(self) -> None:
        """Write what waits. Unbuffered, so that it is known how much of it the file has."""
        data, done = b"".join(self._lines), 0
        self._is_full = True
        try:
            self._written.check(self._seal)
            while done < len(data):
                done += self._raw.write(data[done:])
            self._is_full = False
        except (OSError, ValueError) as error:
            raise OperationFailed(f"{self._name} cannot be written: {_reason(error)}") from None
        finally:
            self._written.add_written(data[:done])
            self._lines = [data[done:]] if done < len(data) else []
            self._bytes = len(data) - done

    def prepare(self) -> tuple[int, ...]:
        """An epoch ends here: all rows taken so far are on the disk; the length of the file."""
        self._put()
        file, end = self._raw.fileno(), self._raw.tell()
        try:
            check_name(file, Path(self._name))
            check_seal(file, self._name, self._seal)
            self._sync()
            self._written.check(self._seal)
            self._seal = seal_of(file, end)
        except OSError as error:
            raise OperationFailed(f"{self._name} cannot be written: {_reason(error)}") from None
        return (end,)

    def _sync(self) -> None:
        try:
            os.fsync(self._raw.fileno())
        except OSError as error:  # the system takes for written what it could not write, and would not say so again
            raise RollBackNeeded(f"{self._name} cannot be written: {_reason(error)}") from None

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        """Rows of a file count when they are there."""


class PendingTextWriter(TextWriter):
    """The same where files are rolled: one gets its name when the epoch of its last row is committed, and is never torn.

    Lines that the disk does not take stay in memory, as of `TruncatingTextWriter`.
    """

    def __init__(self, files: PendingFiles, name: str, render: Render, times: LatencyRecorder) -> None:
        super().__init__(None, name, render, times, owned=True)
        self._pending = files
        self._raw: io.FileIO | None = None
        self._written: AppendedFile | None = None
        self._is_full = False
        if files.kept_bytes:
            self._open()

    def _open(self) -> tuple[io.FileIO, AppendedFile]:
        self._raw = raw = self._pending.open_current(self._pending.part)
        self._written = written = AppendedFile(raw, str(self._pending.part(self._pending.number)))
        return raw, written

    def _hand_over(self) -> None:
        if not self._is_full:
            with contextlib.suppress(OperationFailed):  # `prepare` says it
                self._put()
        if self._bytes > MAX_WAITING_BYTES:
            self._put()

    def flush(self) -> None:
        if self._lines:
            self._hand_over()
        with contextlib.suppress(OperationFailed):
            self._roll()

    def prepare(self) -> tuple[int, ...]:
        """An epoch ends here: all rows taken so far are on the disk; the number of the file, and its length."""
        self._put()
        self._roll()
        if self._raw is None or self._written is None:
            return (self._pending.number, 0)
        self._pending.sync(self._raw)
        self._pending.check(self._written)
        end = self._raw.tell()
        self._pending.seal(self._raw, self._pending.part, end)
        return (self._pending.number, end)

    def commit(self, ends: tuple[int, ...], epoch: int) -> None:
        """Files before that one get their names."""
        self._pending.finish_before(ends[0])

    @property
    def place(self) -> str:
        """Return the place of the files and the last one's seal, for the node that finishes them after the run."""
        return self._pending.place("csv")

    def at_end_of_input(self) -> None:
        """No row follows: the last file is whole."""
        self._put()
        self._close_file()

    def close(self) -> None:
        raw, self._raw, self._written = self._raw, None, None
        if raw is not None:
            raw.close()

    def _put(self) -> None:
        if not self._lines:
            return
        data, done = b"".join(self._lines), 0
        self._is_full = True
        try:
            raw, written = self._open() if self._raw is None or self._written is None else (self._raw, self._written)
            self._pending.check(written)
            while done < len(data):
                done += raw.write(data[done:])
            self._is_full = False
        except (OSError, ValueError) as error:
            raise OperationFailed(f"{self._name} cannot be written: {_reason(error)}") from None
        finally:
            if self._written is not None:
                self._written.add_written(data[:done])
            self._lines = [data[done:]] if done < len(data) else []
            self._bytes = len(data) - done

    def _roll(self) -> None:
        if self._raw is not None and not self._lines and self._pending.is_whole(self._raw.tell()):
            self._close_file()

    def _close_file(self) -> None:
        if self._raw is not None and self._written is not None:
            self._pending.sync(self._raw)
            self._pending.check(self._written)
            self._raw.close()
            self._raw = self._written = None
            self._pending.next()


def _reopened(path: str, keep: CommittedOutput | None, *, continues_run: bool, cuts: bool) -> tuple[io.FileIO, Seal]:
    """Open a file to continue after its committed part, and return its seal.

    Without a committed part, begin at the file's start, or at its end (`continues_run`).

    Args:
        cuts: drop all that follows the committed part; else keep all whole lines there.
    """
    file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")
    try:
        claim(file.fileno(), path)
        size = os.fstat(file.fileno()).st_size
        (end,) = (size if continues_run else 0,) if keep is None else keep.ends
        known = None if keep is None else parse_sealed_file(keep.identity)
        if keep is not None and keep.is_from_other_run:
            _check_restored_file(file, path, end, known)
            known = None
        seal = known.seal if known is not None else seal_of(file.fileno(), end)  # else its length is all that is known
        check_seal(file.fileno(), path, seal)
        if keep is not None and not cuts:
            end = _end_of_lines(file, end, size)
        file.truncate(end)
        file.seek(end)
    except BaseException:
        file.close()
        raise
    return file, seal


def _check_restored_file(file: io.FileIO, path: str, end: int, before: SealedFile | None) -> None:
    """A run begins with the state of another one that wrote a file of this path: is it this file, or only one of its name?

    Raises:
        OperationFailed: it is another one; rows of the two would be in one file, and earlier ones missing there.
    """
    if before is None or before.path != os.path.abspath(path) or not before.seal.length:
        return
    if not end:
        print(  # noqa: T201  what an executor prints is shown by `agiledart logs`
            f"{path} begins anew here: the {before.seal.length:,} bytes before them are where the run of the checkpoint wrote them",
            file=sys.stderr,
        )
        return
    if fault := fault_of(file.fileno(), before.seal):
        raise OperationFailed(
            f"{DOES_NOT_FIT}: {path} {fault}, so it is not the file that its run wrote. Bring that one to this node, move this one "
            "away (then it begins anew), or give the sink another file"
        )


def _end_of_lines(file: io.FileIO, begin: int, size: int) -> int:
    """Behind the last whole line of a file; a process that was killed may have left a part of one. Not before `begin`."""
    end = size
    while end > begin:
        start = max(begin, end - _BUFFERED_BYTES)
        line_feed = os.pread(file.fileno(), end - start, start).rfind(b"\n")
        if line_feed >= 0:
            return start + line_feed + 1
        end = start
    return begin


def open_sink(connector: Connector, row_type: Any, clock: Callable[[], int], origin: Any) -> TextWriter:
    """The writer of a `csv:`, `jsonl:` or `stdout:` connector; a file is written anew, unless a run goes on with it."""
    form = connector.kind
    if form == "stdout":
        form = connector.option("format", "jsonl" if is_dict(row_type) else "csv")
        if form not in ("csv", "jsonl"):
            raise ConfigurationError(f"{connector.url()}: format is csv or jsonl, not {form!r}")
    if form == "csv" and is_dict(row_type):
        reject_dict_rows("CSV")
    render = _csv(row_type, csv_form(connector)) if form == "csv" else _json(row_type)
    times = LatencyRecorder(row_type, clock)
    if connector.kind == "stdout" or connector.path in ("-", "/dev/stdout"):
        return TextWriter(sys.stdout.buffer, "standard output", render, times, owned=False)
    if not connector.path:
        raise ConfigurationError(f"a {connector.kind} sink needs a path: {connector.kind}:FILE")
    max_bytes = quantity(connector, "roll_bytes", SIZES, "64MiB")
    max_age_ns = quantity(connector, "roll_age", SPANS_MS, "1h") * 1_000_000
    if (max_bytes or max_age_ns) and origin is not None and origin.by_epoch:
        pending = pending_files(connector.path, max_bytes, max_age_ns, origin)
        return PendingTextWriter(pending, connector.path, render, times)
    if max_bytes or max_age_ns:
        files = RolledFiles(connector.path, max_bytes, max_age_ns, time.monotonic_ns)
        return TextWriter(None, connector.path, render, times, owned=True, files=files)
    try:
        if origin is not None and origin.by_epoch:
            opened = _reopened(
                connector.path, origin.keep, continues_run=origin.continues_run, cuts=not origin.emits_at_once
            )
            return TruncatingTextWriter(*opened, connector.path, render, times, emits_at_once=origin.emits_at_once)
        file = open(connector.path, "wb")  # noqa: SIM115  held open until `close`
    except OSError as error:
        raise OperationFailed(f"{connector.path} cannot be written: {_reason(error)}") from None
    return TextWriter(file, connector.path, render, times, owned=True)


def _csv(row_type: Any, form: CsvForm) -> Render:
    columns_for, delimiter = columns_of(row_type, form=form), form.delimiter

    def render(row: Any, now: int) -> bytes:
        columns: list[str] = []
        columns_for(row, now, columns)
        return (delimiter.join(columns) + "\n").encode("utf-8", "replace")

    return render


def _json(row_type: Any) -> Render:
    value_for = json_of(row_type)
    encode = msgspec.json.Encoder().encode
    return lambda row, now: encode(value_for(row, now)) + b"\n"


def _reason(error: Exception) -> str:
    text = system_text(error)
    return text[:1].lower() + text[1:]
