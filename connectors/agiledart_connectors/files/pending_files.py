"""`PendingFiles`: a sink's files in a run that is saved by epochs: one gets its name when the epoch of its last row is committed.

    NAME-00007.EXT.RUN.STEP.part         being written, or whole and waiting for its epoch
    NAME-00007.EXT.RUN.STEP.rows.part    of formats whose files cannot be cut back: the rows of the former, as they are kept

An epoch ends in a file, by number, at a length of what can be cut back. A run that is brought back there gives those before it
their names, cuts that one back and sweeps those behind it; files of other runs and other sinks are left alone. A number is taken
when the first row of its file comes, by making the file: no two writers have the same one.
"""

import contextlib
import io
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from agiledart_connectors.files.appended_file import AppendedFile
from agiledart_connectors.files.pending_place import PendingPlace, parse_pending_place, run_suffix_of
from agiledart_connectors.files.rolled_files import PART, RolledFiles, reason_of
from agiledart_connectors.files.seals import OutputFileChangedError, Seal, check_name, check_seal, seal_of
from agiledart_kernel.errors import OperationFailed, RollBackNeeded
from agiledart_sink_log.writer_lock import claim

if TYPE_CHECKING:
    from agiledart_connectors.sink_origin import SinkOrigin

ROWS: Final = ".rows"

MAX_TRIES: Final = 100
"""Numbers that are tried in turn while others take them."""


class PendingFiles(RolledFiles):
    """Names of one sink's files, in order of their numbers.

    Args:
        path, max_bytes, max_age_ns, clock: as of `RolledFiles`.
        run: number of the run.
        step: name of the sink.
        keep: (number, length) of the committed epoch that the sink continues from; None: it begins.
        seal: of the committed part of that file; None: unknown.

    Attributes:
        number: of the file being written; between files, the least number that the next one may have.
        kept: committed length of that file when the sink continues it; 0 from the next file on.

    Raises:
        OperationFailed: from any method, when the file system refuses; the message has the path.
    """

    def __init__(
        self,
        path: str,
        max_bytes: int,
        max_age_ns: int,
        clock: Callable[[], int],
        run: int,
        step: str,
        keep: tuple[int, int] | None,
        seal: Seal | None = None,
    ) -> None:
        super().__init__(path, max_bytes, max_age_ns, clock)
        self._seal, self._unsynced = seal, ""
        self._run, self._step, self._mine = run, step, run_suffix_of(run, step)
        self.number, self.kept_bytes = keep or (0, 0)
        self._waiting: list[int] = []  # whole ones that have no name yet
        self._named = 0  # the last one that has got its name
        self._closed: set[int] = set()  # by this process
        for number in sorted({number for number, end in self._found() if self._is_mine(end)}):
            if number < self.number:
                self._waiting.append(number)
            elif number > self.number or not self.kept_bytes:
                self.remove(number)
        self.finish_before(self.number)
        if keep is None:
            self.number = self._last_number() + 1 if self.rolls else 1

    def place(self, kind: str) -> str:
        """Return the place of the files as a text, for the node that finishes them when the run has ended."""
        return PendingPlace(kind, os.path.abspath(self._path), self.rolls, self._run, self._step, self._seal).text

    def final(self, number: int) -> Path:
        """Return the final path of a file."""
        return self._numbered(number) if self.rolls else self._path

    def part(self, number: int) -> Path:
        """Return the path of a file until it is finished."""
        return self._with(number, PART)

    def rows(self, number: int) -> Path:
        """Return the path of a file's rows, for formats that cannot be cut back."""
        return self._with(number, f"{ROWS}{PART}")

    def open_current(self, name: Callable[[int], Path]) -> io.FileIO:
        """Open the current file unbuffered and locked for this process: a new one, or an old one cut back to its committed length.

        Args:
            name: path by number: `part` or `rows`.
        """
        file = None
        try:
            self._began = self._clock()
            file = self._claimed(name, os.O_CREAT) if self.kept_bytes or not self.rolls else self._new(name)
            known = self._seal if self.kept_bytes else None
            check_seal(file.fileno(), str(name(self.number)), known or seal_of(file.fileno(), self.kept_bytes))
            file.truncate(self.kept_bytes)
            file.seek(self.kept_bytes)
            self.sync_folder()
        except BaseException as error:
            if file is not None:
                file.close()
            if isinstance(error, OSError):
                raise OperationFailed(f"{name(self.number)} cannot be written: {reason_of(error)}") from None
            raise
        return file

    def _claimed(self, name: Callable[[int], Path], flags: int) -> io.FileIO:
        path = name(self.number)
        file = io.FileIO(os.open(path, os.O_RDWR | flags | os.O_CLOEXEC, 0o666), "r+")
        try:
            claim(file.fileno(), str(path))
        except BaseException:
            file.close()
            raise
        return file

    def _new(self, name: Callable[[int], Path]) -> io.FileIO:
        """Create a file of an unused number. A process that sees another's file of its number drops its own."""
        self.number = max(self.number, self._last_number() + 1)
        for _ in range(MAX_TRIES):
            file = self._claimed(name, os.O_CREAT | os.O_EXCL)
            others = [end for number, end in self._found() if number == self.number and not self._is_mine(end)]
            if not others:
                return file
            file.close()
            name(self.number).unlink()
            is_behind = "" < max(others) < f".{self._mine}"  # one of two goes further: else they would meet again
            self.number = self._last_number() + 1 + is_behind
        raise OperationFailed(f"{self._path} cannot be written: others take each number that is tried")

    def next(self) -> None:
        """The current file is whole, and on the disk; it waits for its epoch."""
        self._waiting.append(self.number)
        self._closed.add(self.number)
        self.number, self.kept_bytes, self._seal = self.number + 1, 0, None

    def finish_before(self, number: int) -> None:
        """Those before this one are committed: they get their names."""
        while self._waiting and self._waiting[0] < number:
            first = self._waiting[0]
            try:
                if self._named != first:
                    self._name(first)
                    self._named = first
                self.sync_folder()
                self.rows(first).unlink(missing_ok=True)
            except OSError as error:
                raise OperationFailed(f"{self.final(first)} cannot be written: {reason_of(error)}") from None
            self._closed.discard(self._waiting.pop(0))

    def _name(self, number: int) -> None:
        part, final = self.part(number), self.final(number)
        if not part.exists():
            if number in self._closed or not final.exists():
                raise OutputFileChangedError(
                    f"{part} is gone, and its rows with it: another program has removed it. Put it back, or submit again"
                )
            return  # an earlier attempt has named it
        if self.rolls and final.exists():
            raise OutputFileChangedError(
                f"{final} exists: another program writes files of this name. Move it away; the rows are in {part.name}"
            )
        part.replace(final)

    def check(self, written: AppendedFile) -> None:
        """Check that the current file is as written. Raises like `AppendedFile.check`; OperationFailed for an OSError."""
        try:
            written.check(self._seal)
        except OSError as error:
            raise OperationFailed(f"{self._path} cannot be read: {reason_of(error)}") from None

    def seal(self, file: io.FileIO, name: Callable[[int], Path], length: int) -> None:
        """Record the current file's state up to this length, at the end of an epoch.

        Raises:
            OutputFileChangedError: another program has changed the part that the last epoch covers, or has taken the file's name.
        """
        path = name(self.number)
        try:
            check_name(file.fileno(), path)
            if self._seal is not None:
                check_seal(file.fileno(), str(path), self._seal)
            self._seal = seal_of(file.fileno(), length)
        except OSError as error:
            raise OperationFailed(f"{path} cannot be read: {reason_of(error)}") from None

    def sync(self, file: io.FileIO) -> None:
        """Make the current file's contents survive a power cut.

        Raises:
            RollBackNeeded: the contents may be lost: the system marks as written what it failed to write, and reports that once.
        """
        try:
            if not self._unsynced:
                os.fsync(file.fileno())
        except OSError as error:
            self._unsynced = f"{self._path} cannot be written: {reason_of(error)}"
        if self._unsynced:
            raise RollBackNeeded(self._unsynced)

    def sync_folder(self) -> None:
        """Make created and renamed files survive a power cut. Raises OSError."""
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, number: int) -> None:
        """Sweep what has no name of it."""
        with contextlib.suppress(OSError):  # then it is written over
            self.part(number).unlink(missing_ok=True)
            self.rows(number).unlink(missing_ok=True)

    def is_taken(self) -> bool:
        """Return whether a file of this name exists, finished or not."""
        return next(self._found(), None) is not None

    def _with(self, number: int, ending: str) -> Path:
        final = self.final(number)
        return final.with_name(f"{final.name}.{self._mine}{ending}")

    def _ending(self) -> str:
        return rf"\.{re.escape(self._mine)}({re.escape(ROWS)})?{re.escape(PART)}"

    def _is_mine(self, end: str) -> bool:
        return re.fullmatch(self._ending(), end) is not None

    def _found(self) -> Iterator[tuple[int, str]]:
        """(number, what follows the final name) of all that is there, whoever's it is."""
        stem, suffix = re.escape(self._path.stem), re.escape(self._path.suffix)
        numbered = r"-(\d+)" if self.rolls else "()"
        form = re.compile(rf"{stem}{numbered}{suffix}((?:[.].+)?)", re.ASCII)
        try:
            names = os.listdir(self._path.parent)
        except OSError as error:
            raise OperationFailed(f"{self._path} cannot be written: {reason_of(error)}") from None
        for name in names:
            if (match := form.fullmatch(name)) is not None:
                yield int(match[1] or 1), match[2]


def _seal_in(identity: str) -> Seal | None:
    try:
        place = parse_pending_place(identity)
    except (msgspec.MsgspecError, ValueError):
        return None
    return None if place is None else place.seal


def pending_files(path: str, max_bytes: int, max_age_ns: int, origin: "SinkOrigin") -> PendingFiles:
    """Those of a sink that is opened, for the first time or again."""
    keep = origin.keep
    if keep is not None and len(keep.ends) != 2:
        raise OperationFailed(f"{path}: its committed output is not one of several numbered files; submit again")
    ends = None if keep is None else (keep.ends[0], keep.ends[1])
    seal = None if keep is None else _seal_in(keep.identity)
    files = PendingFiles(path, max_bytes, max_age_ns, time.monotonic_ns, origin.run, origin.step, ends, seal)
    if origin.continues_run and keep is None and not files.rolls and files.is_taken():
        raise OperationFailed(
            f"{path} has the rows of the run whose state this one begins with, and cannot be gone on with: give the sink "
            "roll_bytes= or roll_age=, or another file"
        )
    return files
