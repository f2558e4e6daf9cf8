"""`FollowedLines`: the lines of files that grow, of one or of a folder or pattern; a file that is rotated away is read to its end.

A file is known by its inode: renamed it goes on where it was, and a new one under the old name is read from its beginning. One
whose first bytes, or whose bytes before the place up to which it was read, are others than those that were read, was written anew,
and is read from its beginning. Lines count when their line feed has come. The last line of a file that is gone, or whose name
another file has taken for some seconds, counts without one.
"""

import os
import time
from glob import has_magic
from pathlib import Path
from typing import Final

from agiledart_connectors.codecs.file_start import PLAIN_LINES, IsHeader, LineForm, encoding_note
from agiledart_connectors.codecs.lines import LinesBlock
from agiledart_connectors.codecs.packed_files import is_packed
from agiledart_connectors.files.folder_watch import FolderWatch
from agiledart_connectors.files.many_lines import files_of
from agiledart_connectors.files.packed_tail import PackedTail
from agiledart_connectors.files.tail import Tail
from agiledart_connectors.files.tail_copies import TailCopies
from agiledart_kernel.errors import OperationFailed

_MAX_OPEN: Final = 64
"""Files that are held open, so that one that is rotated away can be read to its end."""

_QUIET_S: Final = 5.0
"""Time without a new byte after which the writer of a rotated file has gone on in the file that took its name."""


class FollowedLines:
    """Reads what there is, then what comes; has no end.

    Args:
        path: of a file, a folder or a pattern.
        form: how the lines are written.

    Attributes:
        form: how the lines are written.
        name: of the file whose lines were given last.
        is_header: asked of each file's first record.
    """

    skipped = 0

    def __init__(self, path: str, form: LineForm = PLAIN_LINES) -> None:
        self._path, self.form = path, form
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        if not folder.is_dir() and not has_magic(str(folder)):
            raise OperationFailed(f"{path} cannot be followed: there is no folder {folder}")
        self._watch = FolderWatch([folder] if folder.is_dir() else [])
        self._tails: dict[tuple[int, int], Tail] = {}
        self._packed: dict[tuple[int, int], PackedTail] = {}
        self._copies = TailCopies()
        self._has_looked = False
        self._last_lines: list[tuple[str, LinesBlock]] = []  # of files that are gone
        self._notices: list[str] = []
        self.name = Path(path).name
        self.is_header: IsHeader | None = None

    def fileno(self) -> int | None:
        return self._watch.fileno()

    def notices(self) -> list[str]:
        """Return and forget notices for users: files that were cut, or cannot be read."""
        notices, self._notices = self._notices, []
        return notices

    def block(self) -> LinesBlock | None:
        self._watch.clear()
        changed = self._changed()
        if self._last_lines:
            self.name, last_line = self._last_lines.pop(0)
            return last_line
        for tail in changed:
            self.name = tail.name
            try:
                block = tail.read(self.is_header) if isinstance(tail, PackedTail) else self._read(tail)
            except (OSError, OperationFailed) as error:
                self._note(_fault(tail.path, error))
                tail.close()
                continue
            if block is not None:
                return block
            if len([opened for opened in self._tails.values() if opened.descriptor >= 0]) > _MAX_OPEN:
                tail.close()
        return LinesBlock(b"", 0, [], is_all_for_now=True)

    def _read(self, tail: Tail) -> LinesBlock | None:
        """The next lines of a file, of a copy only those that were not read of its original."""
        if not tail.is_checked:
            verdict = self._copies.look(tail, self._tails.values())
            if verdict is None:  # still being written
                return None
            tail.is_checked = True
            if verdict:
                self._note(verdict)
        if not tail.offset and (note := encoding_note(tail.name, os.pread(tail.open(), 2, 0), self.form.encoding)):
            self._note(note)
        if tail.is_ended:
            tail.is_ended = False
            self._note(
                f"{tail.name}: more was written behind its last line, at offset {tail.offset:,}, after that had been read"
            )
        return tail.read(self.is_header)

    def _changed(self) -> list[Tail | PackedTail]:
        """Files of which more may be read: those that have gone first, new ones last."""
        now: dict[tuple[int, int], Tail] = {}
        grown: list[Tail | PackedTail] = []
        fresh: list[Tail | PackedTail] = []
        packed: dict[tuple[int, int], PackedTail] = {}
        holders: dict[str, tuple[int, int]] = {}
        for path in files_of(self._path):
            try:
                status = os.stat(path)
            except OSError:  # gone since
                continue
            key = status.st_dev, status.st_ino
            if (known := self._packed.get(key)) is not None or (key not in self._tails and is_packed(path)):
                known = known or PackedTail(path, self.form, self._copies if self._has_looked else None, self._tails)
                packed[key] = known
                known.moved(path)
                if known.may_have_more(status):
                    fresh.append(known)
                continue
            tail = self._tails.get(key)
            if tail is None:
                tail = Tail(path, self.form)
                tail.is_checked = not self._has_looked
            now[key] = tail
            holders[path] = key
            tail.moved(path)
            self._check_rewritten(tail, status)
            if status.st_size > tail.offset:
                (grown if tail.is_checked else fresh).append(tail)
        gone = self._gone(now, grown)
        self._end_left_behind(now, holders)
        self._tails, self._packed, self._has_looked = now, packed, True
        return [*gone, *grown, *fresh]

    def _check_rewritten(self, tail: Tail, status: os.stat_result) -> None:
        try:
            if not tail.was_rewritten(status):
                return
        except OSError:  # reading it says so
            return
        is_shorter = status.st_size < tail.offset
        fault = "is shorter than what was read of it" if is_shorter else "begins otherwise than what was read of it"
        self._note(f"{tail.name} {fault}: it is read from its beginning")
        self._end(tail)
        tail.begin_again()

    def _gone(self, now: dict[tuple[int, int], Tail], grown: list[Tail | PackedTail]) -> list[Tail | PackedTail]:
        """Return files of which more may be read though their names are gone; end those that are gone themselves."""
        gone: list[Tail | PackedTail] = []
        for key, tail in self._tails.items():
            if key in now or tail.descriptor < 0:
                continue
            status = os.fstat(tail.descriptor)  # under another name its writer may still write to it
            if status.st_size > tail.offset:
                gone.append(tail)
            elif not status.st_nlink or len(now) > _MAX_OPEN:
                self._end(tail)
                tail.close()
                continue
            now[key] = tail
        return gone

    def _end_left_behind(self, now: dict[tuple[int, int], Tail], holders: dict[str, tuple[int, int]]) -> None:
        """Give the last lines of files whose names others have taken for a while."""
        for key, tail in now.items():
            holder = now.get(holders.get(tail.origin, key))
            if not tail.rest or holder is None or holder is tail or not holder.offset:
                continue
            if time.monotonic() - tail.grew_at >= _QUIET_S:
                self._end(tail)

    def _end(self, tail: Tail) -> None:
        """Give the line of a file whose end will not come."""
        name = tail.name
        block = tail.last_line(self.is_header)
        self._copies.remember(tail)
        if block is not None:
            self._last_lines.append((name, block))

    def _note(self, text: str) -> None:
        if len(self._notices) < _MAX_OPEN:
            self._notices.append(text)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()
        for packed in self._packed.values():
            packed.close()
        self._tails, self._packed = {}, {}
        self._watch.close()


def _fault(path: str, error: OSError | OperationFailed) -> str:
    if isinstance(error, OperationFailed):
        return str(error)
    return f"{path} cannot be read: {error.strerror or error}"
