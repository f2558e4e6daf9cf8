"""Copies of followed files: `logrotate` copies or packs a file under a name that a pattern may match, too.

The part of the original that was read is not read again in its copy. A copy has a name that begins like the original's.
It has the same bytes at its beginning, and before the place up to which the original was read.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from agiledart_connectors.files.tail import ReadPart, Tail

_MAX_PAST: Final = 256
_QUIET_NS: Final = 2_000_000_000

ReadAt = Callable[[int, int], bytes]
"""(length, offset) → bytes of a file."""


def read_part(tail: Tail) -> ReadPart:
    """Return what was read of a file up to now."""
    return ReadPart(Path(tail.origin).name, tail.head, tail.recent, tail.offset, tail.number, tail.rest)


class TailCopies:
    """Parts of files that were read, those of files that are gone or were cut included."""

    def __init__(self) -> None:
        self._past: deque[ReadPart] = deque(maxlen=_MAX_PAST)

    def remember(self, tail: Tail) -> None:
        """Keep what was read of a file that is gone, or that another program writes anew."""
        if tail.offset:
            self._past.append(read_part(tail))

    def parts(self, name: str, tails: Iterable[Tail]) -> list[ReadPart]:
        """Return the parts of which a file of this name may be a copy, the longest first."""
        live = [read_part(tail) for tail in tails if tail.offset]
        related = [part for part in (*self._past, *live) if _is_name_of_copy(name, part.name)]
        return sorted(related, key=lambda part: -part.offset)

    def look(self, tail: Tail, tails: Iterable[Tail]) -> str | None:
        """Have a new file begin where its original was read to.

        Returns a notice for users, empty where the file is no copy; None while it may still become one. Raises OSError.
        """
        file = tail.open()
        status = os.fstat(file)
        read_at: ReadAt = lambda length, offset: os.pread(file, length, offset)  # noqa: E731
        for part in self.parts(tail.name, (other for other in tails if other is not tail)):
            if status.st_size >= part.offset:
                if is_copy(part, read_at):
                    tail.continue_at(part)
                    return f"{tail.name} is a copy of {part.name}: its first {part.number:,} lines were read there"
            elif read_at(len(part.head), 0) == part.head[: status.st_size]:
                is_quiet = time.time_ns() - status.st_mtime_ns > _QUIET_NS
                return "" if is_quiet else None
        return ""


def is_copy(part: ReadPart, read_at: ReadAt) -> bool:
    """Return whether a file begins with a part of another."""
    if read_at(len(part.head), 0) != part.head:
        return False
    return read_at(len(part.recent), part.offset - len(part.recent)) == part.recent


def _is_name_of_copy(name: str, original: str) -> bool:
    """Return whether a program that rotates files would give this name to a copy: `app.log.1.gz`, `app-20260601.log`."""
    return name != original and name.startswith(original.partition(".")[0])
