"""Bytes → texts: bytes of another encoding stay visible, so that their record is malformed and no two keys become one.

Texts are UTF-8 within; other encodings are converted where bytes come in, before lines are cut. A byte that is not of its encoding
becomes a lone surrogate in a text, and a byte that is not UTF-8 in bytes. Neither can be part of a valid text.
"""

import codecs
import re
from typing import Any, Final

from agiledart_connectors.codecs.malformed_examples import ENCODING, MalformedError

_BAD: Final = re.compile("[\ud800-\udfff]")
_FOREIGN: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_STAND_IN, _STAND_IN_BYTE = "\udcff", b"\xff"
_HANDLER: Final = "agiledart-visible"
_MAX_SHOWN: Final = 60

BOM: Final = codecs.BOM_UTF8
_MARKED: Final = {
    "utf-16": {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"},
    "utf-32": {codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be"},
}
"""Encodings whose first bytes say in which order the others come."""

_MARK_BYTES: Final = 4
UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def _visible(error: Any) -> tuple[str | bytes, int]:
    """Stand in for bytes that are not of the encoding."""
    return (_STAND_IN if isinstance(error, UnicodeDecodeError) else _STAND_IN_BYTE), error.end


codecs.register_error(_HANDLER, _visible)


def text_of(data: bytes | bytearray) -> tuple[str, bool]:
    """Return UTF-8 as a text, and whether there are bytes in it that are not: such a byte becomes a lone surrogate."""
    try:
        return data.decode(), False
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape"), True


def has_bad_bytes(text: str) -> bool:
    """Return whether a text of `text_of` has bytes that are not UTF-8."""
    return _BAD.search(text) is not None


def bytes_of(text: str) -> bytes:
    """Return the bytes of a text of `text_of`."""
    return _FOREIGN.sub(_STAND_IN, text).encode("utf-8", "surrogateescape")


def encoding_error(data: bytes | str, encoding: str = "utf-8") -> MalformedError:
    """Return the error for a record whose bytes are not of an encoding."""
    shown = bytes_of(data) if isinstance(data, str) else bytes(data[: 2 * _MAX_SHOWN])
    text = repr(shown[:_MAX_SHOWN]) + (" …" if len(shown) > _MAX_SHOWN else "")
    return MalformedError(ENCODING, f"is no {encoding.upper()}: {text}; encoding= names another one")


class Transcoder:
    """Converter of a stream of bytes to UTF-8; the end of a piece may lie within a character.

    Args:
        encoding: of the bytes.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._begins = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        if encoding not in _MARKED:
            self._decoder = codecs.getincrementaldecoder(encoding)(_HANDLER)

    def convert(self, data: bytes | bytearray, *, is_end: bool = False) -> bytes:
        """Return the next bytes as UTF-8; those that are not of the encoding stay invalid."""
        if self._decoder is None:
            data = self._begins = self._begins + bytes(data)
            if len(data) < _MARK_BYTES and not is_end:
                return b""
            # Without a mark Python's decoder of a stream fails; Windows writes the little end first.
            marks = _MARKED[self._encoding]
            name = next((name for mark, name in marks.items() if data.startswith(mark)), f"{self._encoding}-le")
            self._decoder, self._begins = codecs.getincrementaldecoder(name)(_HANDLER), b""
        return self._decoder.decode(bytes(data), is_end).encode("utf-8", _HANDLER)


def payload_text(payload: bytes, encoding: str) -> str:
    """Return a whole payload as a text. Raises `MalformedError`: it is of another encoding."""
    try:
        return payload.decode(encoding)
    except UnicodeError:
        raise encoding_error(payload, encoding) from None
