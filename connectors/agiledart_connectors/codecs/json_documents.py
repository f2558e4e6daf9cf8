"""JSON documents over several lines → one line for each value: an indented array, or indented objects one after the other.

A file of JSON is such a document when its first line is `{`, or begins with `[` and does not end there. The elements of an array
and the values at the top are cut where brackets outside of texts close; line ends within them become spaces. So each is a line as
a file of one object a line has it, and a malformed one costs no other.

Source: RFC 8259, sections 2 and 7.
"""

import re
from typing import Final

import msgspec

from agiledart_connectors.codecs.encodings import BOM
from agiledart_kernel.limits import MAX_LINE_BYTES

_TOKEN: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*"|[\[\]{},]')
"""A text on one line, as JSON has no other, or a bracket or comma."""

_BLANK: Final = b" \t\r\n"


def member_of(document: bytes, path: str) -> bytes | None:
    """Return a member of an object as JSON; None where there is none.

    Args:
        document: the object.
        path: name of the member, or of several, each within the one before: `data.items`. A member of just this name comes first.
    """
    try:
        members = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if path in members:
        return bytes(members[path])
    first, dot, others = path.partition(".")
    return member_of(bytes(members[first]), others) if dot and first in members else None


def begins_document(data: bytes) -> bool | None:
    """Return whether the first line of some data begins a document over several lines; None: no line with text has come whole."""
    text = data.lstrip(_BLANK)
    end = text.find(b"\n")
    if end < 0:
        return None
    line = text[:end].strip(_BLANK)
    if line == b"{":
        return True
    if line[:1] != b"[":
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return "truncated" in str(error)
    return False


class JsonDocument:
    """Cutter of one document.

    Attributes:
        number: values that were cut.
    """

    def __init__(self) -> None:
        self.number = 0
        self._rest = b""
        self._depth = 0
        self._scanned = 0  # bytes of the rest that were looked at, at this depth
        self._is_array: bool | None = None

    def cut(self, data: bytes, *, is_end: bool) -> bytes:
        """Return the values that have come whole, each as a line with its end."""
        data = self._rest + data
        if self._is_array is None:
            begin = len(data) - len(data.lstrip(_BLANK))
            if begin < len(data):
                self._is_array = data[begin : begin + 1] == b"["
                data = data[begin + 1 :] if self._is_array else data
        values: list[bytes] = []
        start, depth, last = 0, self._depth, 0
        limit = len(data) if is_end else data.rfind(b"\n") + 1  # a text may go on in the next piece, a line does not
        for match in _TOKEN.finditer(data, self._scanned, limit):
            token = match[0]
            last = match.end()
            if token in b"[{":
                depth += 1
            elif token in b"]}":
                depth -= 1
                if depth == 0 and not self._is_array:
                    values.append(data[start:last])
                    start = last
                elif depth < 0:  # the array ends; another may follow
                    values.append(data[start : last - 1])
                    start, depth = last, 0
                    self._is_array = None
                    break
            elif token == b"," and depth == 0:
                values.append(data[start : last - 1])
                start = last
        restart = self._is_array is None and bool(values)
        self._rest, self._depth, self._scanned = data[start:], depth, 0 if restart else max(limit, last) - start
        if len(self._rest) > MAX_LINE_BYTES or (is_end and self._rest.strip(_BLANK)):
            values.append(self._rest)
            self._rest, self._depth, self._scanned = b"", 0, 0
        lines = [value.replace(b"\n", b" ").strip(_BLANK) for value in values]
        lines = [line for line in lines if line]
        self.number += len(lines)
        cut = b"".join(line + b"\n" for line in lines)
        return cut + self.cut(b"", is_end=is_end) if restart and self._rest.strip(_BLANK) else cut


class DocumentLines:
    """Bytes of a file of JSON → lines: as they are, or the values of a document over several lines.

    Attributes:
        is_document: None while the first line has not come whole.
    """

    def __init__(self) -> None:
        self.is_document: bool | None = None
        self._held = b""
        self._document = JsonDocument()

    def convert(self, data: bytes, *, is_end: bool = False) -> bytes:
        """Return the bytes of the next lines."""
        if self.is_document is None:
            data = self._held = self._held + data
            self.is_document = begins_document(data.removeprefix(BOM) + (b"\n" if is_end else b""))
            if self.is_document is None and not is_end and len(data) <= MAX_LINE_BYTES:
                return b""
            self.is_document, self._held = bool(self.is_document), b""
            data = data.removeprefix(BOM) if self.is_document else data
        return self._document.cut(data, is_end=is_end) if self.is_document else data

    def note(self, name: str) -> str:
        """Return the notice for users about a document."""
        return f"{name}: one JSON document over several lines; its values count as lines"
