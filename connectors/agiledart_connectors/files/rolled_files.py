"""`RolledFiles`: a sink that rolls its files writes `NAME-00001.EXT`, `…-00002…`; until it is whole a file ends in `.part`."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from agiledart_kernel.errors import OperationFailed, system_text

PART: Final = ".part"


class RolledFiles:
    """Names of one sink's files, in turn.

    Args:
        path: `DIR/NAME.EXT`; with neither bound that is the only file, else they are numbered on from what is there.
        max_bytes: a file that has so many is whole; 0: whatever its size.
        max_age_ns: one that was begun so long ago is whole; 0: whatever its age.
        clock: nanoseconds that do not run backwards.

    Raises:
        OperationFailed: from any method, when the file system does not take it; the message has the path.
    """

    def __init__(self, path: str, max_bytes: int, max_age_ns: int, clock: Callable[[], int]) -> None:
        self._path = Path(path)
        self._max_bytes, self._max_age_ns = max_bytes, max_age_ns
        self._clock = clock
        self._began = 0
        self._number = self._last_number() if self.rolls else 0
        self.current: Path | None = None

    @property
    def rolls(self) -> bool:
        """Return whether the sink may write several files."""
        return bool(self._max_bytes or self._max_age_ns)

    def begin(self) -> BinaryIO:
        """The next file, open, under its name for the time being."""
        if self.rolls:
            self._number += 1
            self.current = self._numbered(self._number)
        else:
            self.current = self._path
        self._began = self._clock()
        try:
            return open(f"{self.current}{PART}", "wb")
        except OSError as error:
            raise OperationFailed(f"{self.current} cannot be written: {reason_of(error)}") from None

    def is_whole(self, size: int) -> bool:
        """Return whether a file of this size should be ended now."""
        if self._max_bytes and size >= self._max_bytes:
            return True
        return bool(self._max_age_ns) and size > 0 and self._clock() - self._began >= self._max_age_ns

    def end(self, file: BinaryIO) -> None:
        """The current file is whole: it is on the disk, and then gets its name."""
        assert self.current is not None
        try:
            file.flush()
            os.fsync(file.fileno())
            file.close()
            os.replace(f"{self.current}{PART}", self.current)
        except (OSError, ValueError) as error:
            raise OperationFailed(f"{self.current} cannot be written: {reason_of(error)}") from None

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.stem}-{number:05}{self._path.suffix}")

    def _last_number(self) -> int:
        """The greatest of what is there, files that have no name yet included, whoever began them."""
        form = re.compile(
            rf"{re.escape(self._path.stem)}-(\d+){re.escape(self._path.suffix)}([.][-.+0-9a-zA-Z_]+)?", re.ASCII
        )
        try:
            names = os.listdir(self._path.parent)
        except OSError as error:
            raise OperationFailed(f"{self._path} cannot be written: {reason_of(error)}") from None
        return max((int(match[1]) for name in names if (match := form.fullmatch(name)) is not None), default=0)


def reason_of(error: Exception) -> str:
    """Return the file system's text for an error, for use within a sentence."""
    text = system_text(error)
    return text[:1].lower() + text[1:]
