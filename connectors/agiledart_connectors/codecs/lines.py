"""Bytes → lines, in blocks: plain files, packed ones (known by their first bytes), standard input, generators of lines.

A line ends with a line feed; a carriage return before it is dropped. Other encodings become UTF-8 before lines are cut. A line
longer than MAX_LINE_BYTES is counted, not kept. Of CSV, blocks with quotes are cut into records, and one that has not come whole
waits for the next block.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias, runtime_checkable

from agiledart_connectors.codecs.block_buffers import BlockBuffers
from agiledart_connectors.codecs.encodings import BOM, Transcoder, text_of
from agiledart_connectors.codecs.file_start import PLAIN_LINES, IsHeader, LineForm, encoding_note, start_size
from agiledart_connectors.codecs.json_documents import DocumentLines
from agiledart_connectors.codecs.packed_files import UNPACKING_ERRORS, open_unpacked
from agiledart_connectors.codecs.quoted_records import CsvRecord, quoted_records
from agiledart_kernel.errors import OperationFailed, system_text
from agiledart_kernel.limits import MAX_LINE_BYTES

BLOCK_BYTES = 64 << 10
_TAIL_BYTES = 4 << 10
PLAIN = bytes(code for code in range(0x20, 0x7F) if code not in b'_"') + b"\n"
"""Bytes of which a block may consist to be parsed the fast way: with others Python's number syntax is wider than ours."""

Data: TypeAlias = bytes | bytearray
"""Bytes that were read, not to be changed."""


@dataclass(frozen=True)
class LinesBlock:
    """Some lines, without their ends.

    Attributes:
        data: their bytes, with line feeds between them.
        overlong: how many lines before, between or after them were too long to keep.
        texts: where they are not just what `data` says.
        first: how many lines of its file are before it, where that is known.
        is_all_for_now: nothing more has come yet, and something may.
        records: of CSV with quotes, instead of the lines: `record_lines` are these.
    """

    data: bytes
    overlong: int = 0
    texts: list[str] | None = None
    first: int | None = None
    is_all_for_now: bool = False
    records: list[CsvRecord] | None = None
    record_lines: int = 0

    @property
    def lines(self) -> list[str]:
        """Return the lines as texts."""
        return text_of(self.data)[0].split("\n") if self.texts is None else self.texts

    @property
    def plain(self) -> bool:
        """Are all of them printable ASCII without `_` and quotes? Looked at when asked: lines that stay text need it not."""
        return not self.data.translate(None, PLAIN)


class LineSource(Protocol):
    """Source of lines for a text reader.

    Attributes:
        form: how its lines are written.

    A source that grows also has `fileno()`, a descriptor that becomes readable when more may have come.
    """

    form: LineForm

    @property
    def name(self) -> str:
        """Return the name that users know: a file's name, a generator's URL."""
        ...

    @property
    def skipped(self) -> int:
        """Lines before the first that was given: a header."""
        ...

    def block(self) -> LinesBlock | None:
        """The next lines; None at the end. Raises `OperationFailed`."""
        ...

    def notices(self) -> list[str]:
        """Return and forget notices for users."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


@runtime_checkable
class Closable(Protocol):
    """Iterator of lines or batches that holds something until it is closed: a generator, a file."""

    def close(self) -> None:
        """Release what it holds."""
        ...


class FileLines:
    """Lines of a file; `-` or an empty path is standard input.

    Attributes:
        is_header: called once, with the first record; when it returns True, that is skipped. None: there is no header.

    Raises:
        OperationFailed: the file is missing, unreadable, or its gzip data are cut short or broken.
    """

    def __init__(self, path: str, *, skip_header: bool = False, form: LineForm = PLAIN_LINES) -> None:
        self._path = path or "-"
        self.name = "standard input" if self._path == "-" else Path(path).name
        self.skipped = 0
        self.form = form
        self.is_header: IsHeader | None = _always if skip_header else None
        self._transcoder = Transcoder(form.encoding) if form.transcodes else None
        self._document = DocumentLines() if form.is_json else None
        self._notices: list[str] = []
        self._file = self._open()
        self._looks_ahead = self._path != "-" and isinstance(self._file, BufferedReader) and not form.transcodes
        self._buffers = BlockBuffers()
        self._rest: Data = b""
        self._discarding = False
        self._is_header_checked = False
        self._first = True
        self._ended = False

    def _open(self) -> BinaryIO:
        if self._path == "-":
            return sys.stdin.buffer
        try:
            file = open(self._path, "rb")  # noqa: SIM115  held open until `close`
            return open_unpacked(file, self._path)
        except OSError as error:
            looked = "" if Path(self._path).is_absolute() else f"; a relative path, looked for in {Path.cwd()}"
            raise OperationFailed(f"{self._path} cannot be read: {_reason(error)}{looked}") from None

    def _to_a_line_end(self, size: int) -> int:
        """Return `size`, or a little less so that a line ends there: then no rest of a line is copied from block to block."""
        if not self._looks_ahead or size <= _TAIL_BYTES:
            return size
        tail = os.pread(self._file.fileno(), _TAIL_BYTES, self._file.tell() + size - _TAIL_BYTES)
        return size - len(tail) + tail.rfind(b"\n") + 1 if len(tail) == _TAIL_BYTES and b"\n" in tail else size

    def _read(self, size: int) -> Data:
        try:
            if self._path == "-":
                return self._file.read1(size)  # type: ignore[attr-defined,no-any-return]
            if size > BLOCK_BYTES and isinstance(self._file, BufferedReader):
                return self._buffers.read(self._file, self._to_a_line_end(size))
            return self._file.read(self._to_a_line_end(size))
        except EOFError:
            raise OperationFailed(
                f"{self._path} is cut short: its packed data end in the middle; get the whole file"
            ) from None
        except UNPACKING_ERRORS as error:
            raise OperationFailed(f"{self._path} is damaged: {error}") from None
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is None:  # of a library that unpacks, not of the system
                raise OperationFailed(f"{self._path} is damaged: {_reason(error)}") from None
            raise OperationFailed(f"{self._path} cannot be read: {_reason(error)}") from None

    def raw(self, size: int) -> bytes:
        """The next bytes, unpacked and not cut into lines; fewer only at the end. Raises as `cut`."""
        data = b""
        while len(data) < size and (piece := self._read(size - len(data))):
            data += piece
        return data

    def block(self) -> LinesBlock | None:
        cut = self.cut(BLOCK_BYTES)
        return None if cut is None else self.block_of(*cut)

    def block_of(self, data: Data, overlong: int) -> LinesBlock:
        """Lines that were cut. Where a record has not come whole, its lines are put back."""
        form = self.form
        if form.dialect is None or not form.quote or form.quote not in data:
            return block_of(data, overlong)
        split = quoted_records(bytes(data), form.dialect, is_end=self._ended)
        if split.size < len(data):
            self._rest = bytes(data[split.size :]) + bytes(self._rest)
        return LinesBlock(b"", overlong, [], records=split.records, record_lines=split.lines)

    def notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    def cut(self, size: int) -> tuple[Data, int] | None:
        """Whole lines as bytes, each with its end, about so many bytes: (lines, how many were too long). None at the end."""
        if self._ended:
            return None
        data = self._read(size)
        is_end = not data
        data = self._converted(data, is_end=is_end)
        if is_end:
            self._ended = True
            data, self._rest = self._rest + data, b""
            if self._discarding:
                return b"", 1
            if not data:
                return None
            return self._headless(data if data.endswith(b"\n") else data + b"\n", 0)
        overlong = 0
        if self._discarding:
            end = data.find(b"\n")
            if end < 0:
                return b"", 0
            data, self._discarding, overlong = data[end + 1 :], False, 1
        end = data.rfind(b"\n") + 1
        if not end:
            data, end, self._rest = b"", 0, self._rest + data
        elif self._rest:  # a block is large: copied once, not twice
            rest, self._rest = self._rest, data[end:]
            data = rest + memoryview(data)[:end]
            end = len(data)
        else:
            self._rest = data[end:]
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest, self._discarding = b"", True
        return self._headless(data if end == len(data) else data[:end], overlong)

    def _converted(self, data: Data, *, is_end: bool) -> Data:
        """Return bytes that were read as UTF-8, of a JSON document as one line for each value."""
        if self._first and data and (note := encoding_note(self.name, bytes(data[:2]), self.form.encoding)):
            self._notices.append(note)
        if self._transcoder is not None:
            data = self._transcoder.convert(data, is_end=is_end)
        if self._document is not None:
            was_known = self._document.is_document is not None
            data = self._document.convert(bytes(data), is_end=is_end)
            if self._document.is_document and not was_known:
                self._notices.append(self._document.note(self.name))
            elif self._document.is_document is False:
                self._document = None
        if self._first and data:
            self._first = False
            data = data.removeprefix(BOM)
        return data

    def _headless(self, data: Data, overlong: int) -> tuple[Data, int]:
        """The lines without the header, when it has not come yet."""
        if data and not self._is_header_checked:
            size = start_size(bytes(data), self.form, self.is_header, is_end=self._ended)
            if size is None:
                self._rest = bytes(data) + bytes(self._rest)
                return b"", overlong
            self._is_header_checked = True
            if size:
                self.skipped = data.count(b"\n", 0, size)
                data = data[size:]
        return data, overlong

    def close(self) -> None:
        if self._path != "-":
            self._file.close()


def no_fileno() -> None:
    """A `fileno` of what does not grow."""


def _always(line: str) -> bool:
    return True


def block_of(lines: Data, overlong: int = 0) -> LinesBlock:
    """Lines that were cut."""
    if not lines:
        return LinesBlock(b"", overlong, [])
    data = bytes(lines[:-1])
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").removesuffix(b"\r")
    if len(data) <= MAX_LINE_BYTES:
        return LinesBlock(data, overlong)
    texts = text_of(data)[0].split("\n")
    short = [line for line in texts if len(line) <= MAX_LINE_BYTES]
    return LinesBlock(data, overlong + len(texts) - len(short), short)


class GeneratedLines:
    """The lines of a generator, a hundred at a time."""

    _AT_ONCE = 128

    def __init__(self, lines: Iterator[str], name: str) -> None:
        self._lines = lines
        self.name = name
        self.skipped = 0
        self.form = PLAIN_LINES  # each text is a line, whatever is in it

    def notices(self) -> list[str]:
        return []

    def block(self) -> LinesBlock | None:
        lines = list(islice(self._lines, self._AT_ONCE))
        if not lines:
            return None
        return LinesBlock("\n".join(lines).encode("utf-8", "surrogatepass"), texts=lines)

    def close(self) -> None:
        lines: object = self._lines
        if isinstance(lines, Closable):
            lines.close()


def _reason(error: Exception) -> str:
    """Return the system's text for an error, without its number and path."""
    text = system_text(error)
    return text[:1].lower() + text[1:]
