"""`Tail`: one file that grows: how far it was read, and how its reader notices that another program cut it or wrote it anew."""

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from agiledart_connectors.codecs.encodings import BOM, Transcoder
from agiledart_connectors.codecs.file_start import IsHeader, LineForm, start_size
from agiledart_connectors.codecs.json_documents import DocumentLines
from agiledart_connectors.codecs.lines import BLOCK_BYTES, LinesBlock, block_of
from agiledart_connectors.codecs.quoted_records import quoted_records
from agiledart_kernel.limits import MAX_LINE_BYTES

_HEAD_BYTES: Final = 1_024
_RECENT_BYTES: Final = 256


class ReadPart(NamedTuple):
    """Part of a file that was read.

    Attributes:
        name: of the file.
        head, recent: its first bytes, and the last ones of the part.
        offset: bytes of the part; `number`: lines that were given of it.
        rest: the beginning of a line at its end.
    """

    name: str
    head: bytes
    recent: bytes
    offset: int
    number: int
    rest: bytes


class Tail:
    """One file: how far it was read, and the beginning of a line whose end has not come.

    Args:
        path: of the file.
        form: how its lines are written.

    Attributes:
        path, name: now; a file that is renamed goes on where it was.
        offset: bytes that were read.
        number: lines that were given.
        grew_at: monotonic seconds when its last bytes were read.
        is_ended: its last line was given though it has no end.
        origin: path under which it was first seen.
        is_checked: it is known whether it is the copy of another file.
        descriptor: of the open file; -1: it is closed.
    """

    def __init__(self, path: str, form: LineForm) -> None:
        self.path = path
        self.name = Path(path).name
        self._form = form
        self.origin = path
        self.is_checked = True
        self.descriptor = -1
        self.grew_at = time.monotonic()
        self.begin_again()

    def begin_again(self) -> None:
        """Read it from its beginning, as another program has written it anew."""
        self.offset = self.number = 0
        self.rest = b""
        self.head = self.recent = b""
        self.is_ended = False
        self._seen_at: tuple[int, int] = (0, 0)
        self._is_new, self._discards = True, False
        self._transcoder = Transcoder(self._form.encoding) if self._form.transcodes else None
        self._document = DocumentLines() if self._form.is_json else None

    def moved(self, path: str) -> None:
        """It has this name now."""
        if path != self.path:
            self.path, self.name = path, Path(path).name

    def continue_at(self, part: ReadPart) -> None:
        """Go on behind a part that was read of the file of which this one is a copy."""
        self.offset, self.number, self.rest = part.offset, part.number, part.rest
        self.head, self.recent, self._is_new = part.head, part.recent, False

    def open(self) -> int:
        """Return the descriptor of the open file. Raises OSError."""
        if self.descriptor < 0:
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        return self.descriptor

    def was_rewritten(self, status: os.stat_result) -> bool:
        """Return whether what was read of it is no longer there. Raises OSError."""
        if status.st_size < self.offset:
            return True
        look = status.st_size, status.st_mtime_ns
        if not self.offset or look == self._seen_at:
            return False
        self._seen_at = look
        file = self.open()
        begin = self.offset - len(self.recent)
        return os.pread(file, len(self.head), 0) != self.head or os.pread(file, len(self.recent), begin) != self.recent

    def read(self, is_header: IsHeader | None) -> LinesBlock | None:
        """Return the next whole lines; None: no more bytes have come. Raises OSError."""
        data = os.pread(self.open(), BLOCK_BYTES, self.offset)
        if not data:
            return None
        self.offset += len(data)
        self.grew_at = time.monotonic()
        self.head = (self.head + data)[:_HEAD_BYTES] if len(self.head) < _HEAD_BYTES else self.head
        self.recent = (self.recent + data)[-_RECENT_BYTES:]
        if self._transcoder is not None:
            data = self._transcoder.convert(data)
        if self._document is not None:
            data = self._document.convert(data)
        return self._lines(data, is_header, is_end=False)

    def last_line(self, is_header: IsHeader | None) -> LinesBlock | None:
        """Return the line whose end has not come and will not; None: there is none."""
        rest = self.rest
        self.rest = b""
        if not rest:
            return None
        self.is_ended = True
        return self._lines(rest if rest.endswith(b"\n") else rest + b"\n", is_header, is_end=True)

    def _lines(self, data: bytes, is_header: IsHeader | None, *, is_end: bool) -> LinesBlock:
        overlong = 0
        if self._discards:
            end = data.find(b"\n")
            if end < 0:
                return LinesBlock(b"", 0, [], self.number)
            data, self._discards, overlong = data[end + 1 :], False, 1
        data = self.rest + data
        if self._is_new and len(data) >= len(BOM):
            data = data.removeprefix(BOM)
        end = data.rfind(b"\n") + 1
        lines, self.rest = data[:end], data[end:]
        if len(self.rest) > MAX_LINE_BYTES:
            self.rest, self._discards = b"", True
        if lines and self._is_new:
            size = start_size(lines, self._form, is_header, is_end=is_end)
            if size is None:
                self.rest = lines + self.rest
                return LinesBlock(b"", overlong, [], self.number)
            self._is_new = False
            self.number += lines.count(b"\n", 0, size)
            lines = lines[size:]
        first = self.number
        if self._form.quote and self._form.quote in lines:
            assert self._form.dialect is not None
            cut = quoted_records(lines, self._form.dialect, is_end=is_end)
            self.rest = lines[cut.size :] + self.rest
            self.number += cut.lines + overlong
            return LinesBlock(b"", overlong, [], first, records=cut.records, record_lines=cut.lines)
        self.number += lines.count(b"\n") + overlong
        block = block_of(lines, overlong)
        return LinesBlock(block.data, block.overlong, block.texts, first)

    def close(self) -> None:
        """Close the file; it may be opened again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
