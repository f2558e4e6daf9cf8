"""Models that do not fit into a row: parts with the SHA-256 of the whole, and the model put together again."""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import msgspec

from agiledart_dataflow.operators.model_access import ModelPartError
from agiledart_kernel.limits import MAX_MODEL_BYTES, MODEL_PART_BYTES

MARK: Final = b"\x00agiledart model part\x00"
"""Beginning of a part. No ONNX file begins with a zero byte: its first byte is the key of a field, whose number is above zero."""


class PartHeader(msgspec.Struct, frozen=True, array_like=True):
    """Header of a part.

    Attributes:
        digest: SHA-256 of the whole model.
        size: of the whole model in bytes.
        index: of the part, from 0.
        count: of all parts.
    """

    digest: bytes
    size: int
    index: int
    count: int


_HEADERS: Final = msgspec.msgpack.Decoder(PartHeader)


def model_parts(data: bytes) -> list[bytes]:
    """Return the rows by which a model travels: the model itself when it fits into one, else its parts in order."""
    if len(data) <= MODEL_PART_BYTES:
        return [data]
    digest, starts = sha256(data).digest(), range(0, len(data), MODEL_PART_BYTES)
    rows = []
    for index, start in enumerate(starts):
        header = msgspec.msgpack.encode(PartHeader(digest, len(data), index, len(starts)))
        rows.append(MARK + bytes([len(header)]) + header + data[start : start + MODEL_PART_BYTES])
    return rows


@dataclass
class IncomingModel:
    """Parts that have come of a model.

    Attributes:
        digest: of the model; empty when there is none.
        parts: its bytes so far.
        refused: digest of the last model that was refused; the rest of its parts is dropped without another message.
    """

    digest: bytes = b""
    parts: list[bytes] = field(default_factory=list)
    refused: bytes = b""

    def taken(self, row: bytes) -> bytes | None:
        """Take a row; return the model when it is whole.

        Raises:
            ModelPartError: the row is a damaged part, a part is missing, or the model is too large or not what its digest says.
        """
        if not row.startswith(MARK):
            self._clear()
            return row
        header, data = _split(row)
        if header.digest == self.refused and header.index:
            return None
        try:
            return self._put(header, data)
        except ModelPartError:
            self._clear()
            self.refused = header.digest
            raise

    def _put(self, header: PartHeader, data: bytes) -> bytes | None:
        if header.size > MAX_MODEL_BYTES:
            raise ModelPartError(f"the model has {header.size:,} bytes; at most {MAX_MODEL_BYTES:,} are taken")
        if header.index == 0:
            self.digest, self.parts, self.refused = header.digest, [], b""
        if header.digest != self.digest or header.index != len(self.parts):
            raise ModelPartError(
                f"part {header.index + 1} of {header.count} of a model came, not part {len(self.parts) + 1}"
            )
        self.parts.append(data)
        if len(self.parts) < header.count:
            return None
        whole = b"".join(self.parts)
        if sha256(whole).digest() != header.digest:
            raise ModelPartError("the parts of the model are not those of its SHA-256")
        self._clear()
        return whole

    def _clear(self) -> None:
        self.digest, self.parts = b"", []


def _split(row: bytes) -> tuple[PartHeader, bytes]:
    """Return the header and the bytes of a part. Raises `ModelPartError`."""
    start = len(MARK) + 1
    end = start + (row[len(MARK)] if len(row) > len(MARK) else 0)
    try:
        return _HEADERS.decode(row[start:end]), row[end:]
    except msgspec.MsgspecError as error:
        raise ModelPartError(f"this is no part of a model: {error}") from None
