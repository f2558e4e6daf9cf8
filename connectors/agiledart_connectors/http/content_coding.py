"""Bodies as they travel: in chunks (RFC 9112, section 7.1), packed with gzip or deflate (RFC 9110, section 8.4). Bounded."""

import zlib
from io import BufferedIOBase
from typing import Final

CODINGS: Final = ("gzip", "x-gzip", "deflate", "identity", "")
_MAX_CHUNK_LINE: Final = 256
_MAX_TRAILERS: Final = 64


class BodyTooLargeError(ValueError):
    """A body has more bytes than its reader takes."""


def unpacked(data: bytes, coding: str, limit: int) -> bytes:
    """Return the content of a packed body.

    Args:
        data: the whole body.
        coding: value of `Content-Encoding`; one of `CODINGS`.
        limit: greatest size of the content.

    Raises:
        BodyTooLargeError: the content is larger.
        ValueError: the coding is unknown, or the body is not packed so.
    """
    coding = coding.strip().lower()
    if coding not in CODINGS:
        raise ValueError(f"the content coding {coding!r} is unknown; known are gzip and deflate")
    if coding in ("identity", ""):
        return data
    if coding == "deflate" and not _has_zlib_head(data):
        return _inflated(data, -zlib.MAX_WBITS, limit)  # some senders leave out the head
    return _inflated(data, zlib.MAX_WBITS | 16 if coding != "deflate" else zlib.MAX_WBITS, limit)


def _has_zlib_head(data: bytes) -> bool:
    return len(data) >= 2 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0


def _inflated(data: bytes, window: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while data:  # gzip may have several members
        unpacker = zlib.decompressobj(window)
        try:
            piece = unpacker.decompress(data, limit - size + 1)
        except zlib.error as error:
            raise ValueError(f"the body cannot be unpacked: {error}") from None
        size += len(piece)
        if size > limit:
            raise BodyTooLargeError(f"more than {limit:,} bytes")
        if not unpacker.eof:
            raise ValueError("the body ends before its packed content does")
        pieces.append(piece)
        data = unpacker.unused_data if window > zlib.MAX_WBITS else b""
    return b"".join(pieces)


def read_chunks(file: BufferedIOBase, limit: int) -> bytes | None:
    """Read a body that comes in chunks; None when the sender hung up within it.

    Raises:
        BodyTooLargeError: it is larger than `limit`.
        ValueError: it is not in chunks.
    """
    pieces: list[bytes] = []
    size = 0
    while True:
        line = file.readline(_MAX_CHUNK_LINE)
        if not line.endswith(b"\n"):
            if len(line) == _MAX_CHUNK_LINE:
                raise ValueError("the line before a chunk is too long")
            return None
        digits = line.partition(b";")[0].strip()
        if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
            raise ValueError(f"{line[:40]!r} is no size of a chunk")
        length = int(digits, 16)
        if not length:
            break
        size += length
        if size > limit:
            raise BodyTooLargeError(f"more than {limit:,} bytes")
        piece = file.read(length)
        if len(piece) < length or len(file.readline(3)) < 1:
            return None
        pieces.append(piece)
    for _ in range(_MAX_TRAILERS):
        if file.readline(_MAX_CHUNK_LINE) in (b"\r\n", b"\n", b""):
            return b"".join(pieces)
    raise ValueError("too many lines follow the chunks")
