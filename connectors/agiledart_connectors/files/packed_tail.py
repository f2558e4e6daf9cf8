"""`PackedTail`: a packed file among those that are followed. It is read whole, once; while it is still being written, again."""

import os
from collections.abc import Mapping
from pathlib import Path

from agiledart_connectors.codecs.file_start import IsHeader, LineForm
from agiledart_connectors.codecs.lines import FileLines, LinesBlock
from agiledart_connectors.files.tail import Tail
from agiledart_connectors.files.tail_copies import TailCopies, is_copy
from agiledart_kernel.errors import OperationFailed

_PIECE: int = 1 << 20


class PackedTail:
    """One packed file.

    Args:
        path: of the file.
        form: how its lines are written.
        copies: tells whether it is the copy of a followed file; None: it was there before.
        tails: the files that are followed.

    Attributes:
        number: lines that were given, or that were read of its original.
    """

    def __init__(
        self, path: str, form: LineForm, copies: TailCopies | None, tails: Mapping[tuple[int, int], Tail]
    ) -> None:
        self.path, self.name, self.number = path, Path(path).name, 0
        self._form, self._copies, self._tails = form, copies, tails
        self._lines: FileLines | None = None
        self._seen: tuple[int, int] = (0, 0)
        self._passed = 0

    def moved(self, path: str) -> None:
        """It has this name now."""
        self.path, self.name = path, Path(path).name

    def may_have_more(self, status: os.stat_result) -> bool:
        """Return whether it is being read, or has changed since."""
        return self._lines is not None or self._seen != (status.st_size, status.st_mtime_ns)

    def read(self, is_header: IsHeader | None) -> LinesBlock | None:
        """The next lines that were not given; None at its end. Raises `OperationFailed`: it is cut short, or damaged."""
        if self._lines is None:
            status = os.stat(self.path)
            self._seen = status.st_size, status.st_mtime_ns
            if self._copies is not None:
                self.number = max(self.number, self._lines_of_original(self._copies))
            self._lines, self._passed = FileLines(self.path, form=self._form), 0
            self._lines.is_header = is_header
        try:
            block = self._lines.block()
        except OperationFailed:
            self.close()
            raise
        if block is None:
            self.close()
            return None
        first = self._passed + (self._lines.skipped if not self._passed else 0)
        lines = block.record_lines if block.records is not None else len(block.lines)
        self._passed = first + lines + block.overlong
        if self._passed <= self.number:
            return LinesBlock(b"", 0, [], self.number)
        skipped, self.number = max(0, self.number - first), self._passed
        if block.records is not None:
            records = [record for record in block.records if record.line >= skipped]
            return LinesBlock(b"", block.overlong, [], first, records=records, record_lines=block.record_lines)
        if not skipped:
            return LinesBlock(block.data, block.overlong, block.texts, first)
        return LinesBlock(b"", block.overlong, block.lines[skipped:], first + skipped)

    def _lines_of_original(self, copies: TailCopies) -> int:
        """Return how many of its lines were read of the file that it is a packed copy of; 0: it is none."""
        for part in copies.parts(self.name, self._tails.values()):
            if is_copy(part, self._unpacked):
                return part.number
        return 0

    def _unpacked(self, length: int, offset: int) -> bytes:
        """Return some bytes of what is packed; fewer at its end, or where it is cut short."""
        lines = FileLines(self.path)
        try:
            while offset > 0 and (piece := lines.raw(min(offset, _PIECE))):
                offset -= len(piece)
            return lines.raw(length) if not offset else b""
        except OperationFailed:
            return b""
        finally:
            lines.close()

    def close(self) -> None:
        """Close the file; it may be read again."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None
