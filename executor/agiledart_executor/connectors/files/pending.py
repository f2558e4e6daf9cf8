"""`PendingFiles`: a sink's files in a run that is saved by epochs: one gets its name when the epoch of its last row is committed.

    NAME-00007.EXT.RUN.part         being written, or whole and waiting for its epoch
    NAME-00007.EXT.RUN.rows.part    of formats whose files cannot be cut back: the rows of the former, as they are kept

An epoch ends in a file, by number, at a length of what can be cut back. A run that is brought back there gives those before it
their names, cuts that one back and sweeps those behind it; files of other runs are left alone.
"""

import contextlib
import io
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agiledart_executor.connectors.files.rolled import PART, RolledFiles, reason_of
from agiledart_kernel.errors import OperationFailed
from agiledart_sink_log.one_writer import claim

if TYPE_CHECKING:
    from agiledart_executor.connectors.log_sink import SinkOrigin

ROWS: Final = ".rows"


class PendingFiles(RolledFiles):
    """Names of one sink's files, in turn.

    Args:
        path, max_bytes, max_age_ns, clock: as of `RolledFiles`.
        run: number of the run.
        keep: (number, length) of the committed epoch that it goes on from; None: it begins.

    Attributes:
        number: of the file that is written, or will be.
        kept: what of it is committed, when it goes on; 0 from the next one on.

    Raises:
        OperationFailed: from any method, when the file system does not take it; the message has the path.
    """

    def __init__(
        self,
        path: str,
        max_bytes: int,
        max_age_ns: int,
        clock: Callable[[], int],
        run: int,
        keep: tuple[int, int] | None,
    ) -> None:
        super().__init__(path, max_bytes, max_age_ns, clock)
        self._run = f"{run & 0xFFFFFFFFFFFFFFFF:016x}"
        self.number, self.kept = keep or (0, 0)
        self._first = self.number  # of those that have no name yet
        for number in self._pending():
            if number < self.number:
                self._first = min(self._first, number)
            elif number > self.number or not self.kept:
                self._remove(number)
        self.finish_before(self.number)
        if keep is None:
            self.number = self._first = self._last_number() + 1 if self.rolls else 1

    def final(self, number: int) -> Path:
        """What it is called in the end."""
        return self._numbered(number) if self.rolls else self._path

    def part(self, number: int) -> Path:
        """What it is called until then."""
        return self._with(number, PART)

    def rows(self, number: int) -> Path:
        """Where its rows are kept, of formats that cannot be cut back."""
        return self._with(number, f"{ROWS}{PART}")

    def open_kept(self, path: Path) -> io.FileIO:
        """A file of the current number, unbuffered, by one process alone, cut back to what is kept of it."""
        file = None
        try:
            self._began = self._clock()
            file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")
            claim(file.fileno(), str(path))
            size = os.fstat(file.fileno()).st_size
            if size < self.kept:
                raise OperationFailed(
                    f"{path} has {size:,} bytes, and {self.kept:,} were committed: somebody has changed it. Put it back, or submit"
                    " again"
                )
            file.truncate(self.kept)
            file.seek(self.kept)
            self.sync_folder()
        except BaseException as error:
            if file is not None:
                file.close()
            if isinstance(error, OSError):
                raise OperationFailed(f"{path} cannot be written: {reason_of(error)}") from None
            raise
        return file

    def next(self) -> None:
        """The current file is whole, and on the disk; it waits for its epoch."""
        self.number, self.kept = self.number + 1, 0
        while self.rolls and self.final(self.number).exists():  # somebody else's
            self.number += 1

    def finish_before(self, number: int) -> None:
        """Those before this one are committed: they get their names."""
        while self._first < number:
            part, final = self.part(self._first), self.final(self._first)
            try:
                if part.exists():
                    if self.rolls and final.exists():
                        raise OperationFailed(f"{final} exists: somebody else writes files of this name")
                    part.replace(final)
                    self.sync_folder()
                self.rows(self._first).unlink(missing_ok=True)
            except OSError as error:
                raise OperationFailed(f"{final} cannot be written: {reason_of(error)}") from None
            self._first += 1

    def sync_folder(self) -> None:
        """What was made and renamed survives a power cut. Raises OSError."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _with(self, number: int, ending: str) -> Path:
        final = self.final(number)
        return final.with_name(f"{final.name}.{self._run}{ending}")

    def _pending(self) -> list[int]:
        """Numbers of this run's files that have no name yet."""
        stem, suffix = re.escape(self._path.stem), re.escape(self._path.suffix)
        numbered = r"-(\d+)" if self.rolls else "()"
        form = re.compile(rf"{stem}{numbered}{suffix}\.{self._run}({re.escape(ROWS)})?{re.escape(PART)}", re.ASCII)
        try:
            found = (form.fullmatch(name) for name in os.listdir(self._path.parent))
        except OSError as error:
            raise OperationFailed(f"{self._path} cannot be written: {reason_of(error)}") from None
        return sorted({int(one[1] or 1) for one in found if one is not None})

    def _remove(self, number: int) -> None:
        with contextlib.suppress(OSError):  # then it is written over
            self.part(number).unlink(missing_ok=True)
            self.rows(number).unlink(missing_ok=True)


def pending_files(path: str, max_bytes: int, max_age_ns: int, origin: "SinkOrigin") -> PendingFiles:
    """Those of a sink that is opened, for the first time or again."""
    keep = origin.keep
    if keep is not None and len(keep.ends) != 2:
        raise OperationFailed(f"{path}: what was committed of it was no file that is rolled; submit again")
    ends = None if keep is None else (keep.ends[0], keep.ends[1])
    return PendingFiles(path, max_bytes, max_age_ns, time.monotonic_ns, origin.run, ends)
