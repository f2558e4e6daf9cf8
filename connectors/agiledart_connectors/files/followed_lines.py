"""`FollowedLines`: the lines of files that grow, of one or of a folder or pattern; a file that is rotated away is read to its end.

A file is known by its inode: renamed it goes on where it was, and a new one under the old name is read from its beginning. One
that is shorter than what was read of it was cut and is read anew. Lines count when their line feed has come.
"""

import gzip
import os
from collections.abc import Callable
from glob import has_magic
from pathlib import Path
from typing import Final

from agiledart_connectors.codecs.lines import BLOCK_BYTES, BOM, FileLines, LinesBlock, block_of
from agiledart_connectors.files.folder_watch import FolderWatch
from agiledart_connectors.files.many_lines import files_of
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import MAX_LINE_BYTES

_MAX_OPEN: Final = 64
"""Files that are held open, so that one that is rotated away can be read to its end."""

_GZIP: Final = b"\x1f\x8b"


class _Tail:
    """One file: how far it was read, and the beginning of a line whose end has not come."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = Path(path).name
        self.offset = self.number = 0
        self.rest = b""
        self.descriptor = -1
        self.is_new = True
        self.discards = self.is_packed = False
        self.packed: FileLines | None = None

    def read(self, is_header: Callable[[str], bool] | None) -> tuple[bytes, int, int] | None:
        """(whole lines, how many were too long, how many lines were before); None: no more bytes have come."""
        if self.descriptor < 0:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(self.descriptor, BLOCK_BYTES, self.offset)
        if not data:
            return None
        self.offset += len(data)
        overlong = 0
        if self.discards:
            end = data.find(b"\n")
            if end < 0:
                return b"", 0, self.number
            data, self.discards, overlong = data[end + 1 :], False, 1
        data = self.rest + data
        if self.is_new and len(data) >= len(BOM):
            data = data.removeprefix(BOM)
        end = data.rfind(b"\n") + 1
        lines, self.rest = data[:end], data[end:]
        if len(self.rest) > MAX_LINE_BYTES:
            self.rest, self.discards = b"", True
        first = self.number
        if lines and self.is_new:
            self.is_new = False
            line_end = lines.find(b"\n") + 1
            if is_header is not None and is_header(lines[:line_end].decode("utf-8", "replace")):
                lines = lines[line_end:]
                first = self.number = 1
        self.number += lines.count(b"\n") + overlong
        return lines, overlong, first

    def begin_again(self) -> None:
        """It was cut."""
        self.offset = self.number = 0
        self.rest = b""
        self.is_new, self.discards = True, False

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class FollowedLines:
    """Reads what there is, then what comes; has no end.

    Attributes:
        name: of the file whose lines were given last.
        is_header: asked of each file's first line.
    """

    skipped = 0

    def __init__(self, path: str) -> None:
        self._path = path
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        if not folder.is_dir() and not has_magic(str(folder)):
            raise OperationFailed(f"{path} cannot be followed: there is no folder {folder}")
        self._watch = FolderWatch([folder] if folder.is_dir() else [])
        self._tails: dict[tuple[int, int], _Tail] = {}
        self._notices: list[str] = []
        self.name = Path(path).name
        self.is_header: Callable[[str], bool] | None = None

    def fileno(self) -> int | None:
        return self._watch.fileno()

    def notices(self) -> list[str]:
        """Return and forget notices for users: files that were cut, or cannot be read."""
        notices, self._notices = self._notices, []
        return notices

    def block(self) -> LinesBlock | None:
        self._watch.clear()
        for tail in self._changed():
            self.name = tail.name
            try:
                if tail.is_packed:
                    packed = self._packed(tail)
                    if packed is not None:
                        return packed
                    continue
                piece = tail.read(self.is_header)
            except OSError as error:
                self._note(f"{tail.path} cannot be read: {error.strerror or error}")
                tail.is_packed, tail.packed = True, None
                continue
            if piece is not None:
                lines, overlong, first = piece
                block = block_of(lines, overlong)
                return LinesBlock(block.data, block.overlong, block.texts, first)
            if len([opened for opened in self._tails.values() if opened.descriptor >= 0]) > _MAX_OPEN:
                tail.close()
        return LinesBlock(b"", 0, [], is_all_for_now=True)

    def _changed(self) -> list[_Tail]:
        """Files of which more may be read, those that have gone first."""
        now: dict[tuple[int, int], _Tail] = {}
        grown: list[_Tail] = []
        for path in files_of(self._path):
            try:
                status = os.stat(path)
            except OSError:  # gone since
                continue
            key = status.st_dev, status.st_ino
            tail = self._tails.get(key)
            if tail is None:
                tail = _Tail(path)
                tail.is_packed = _is_packed(path)
                tail.packed = FileLines(path) if tail.is_packed else None
            now[key] = tail
            tail.path, tail.name = path, Path(path).name
            if status.st_size < tail.offset:
                self._note(f"{tail.name} is shorter than what was read of it: it is read from its beginning")
                tail.begin_again()
            if status.st_size > tail.offset:
                grown.append(tail)
        for key, tail in self._tails.items():
            if key in now or tail.descriptor < 0:
                continue
            status = os.fstat(tail.descriptor)  # under another name its writer may still write to it
            if status.st_size > tail.offset:
                grown.insert(0, tail)
            elif not status.st_nlink or len(now) > _MAX_OPEN:
                tail.close()
                continue
            now[key] = tail
        self._tails = now
        return grown

    def _packed(self, tail: _Tail) -> LinesBlock | None:
        """A packed file is read whole, once: it must be moved in when it is."""
        if tail.packed is None:
            return None
        tail.packed.is_header = self.is_header
        try:
            block = tail.packed.block()
        except (OperationFailed, gzip.BadGzipFile) as error:
            self._note(str(error))
            block = None
        if block is None:
            tail.packed.close()
            tail.packed = None
            return None
        first, tail.number = tail.number + (tail.packed.skipped if not tail.number else 0), 0
        tail.number = first + len(block.lines) + block.overlong
        return LinesBlock(block.data, block.overlong, block.texts, first)

    def _note(self, text: str) -> None:
        if len(self._notices) < _MAX_OPEN:
            self._notices.append(text)

    def close(self) -> None:
        for tail in self._tails.values():
            tail.close()
            if tail.packed is not None:
                tail.packed.close()
        self._tails = {}
        self._watch.close()


def _is_packed(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(2) == _GZIP
    except OSError:
        return False
