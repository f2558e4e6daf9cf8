"""Index of a batch that is stored by columns: place, checksum and zone map of each field, readable without pyarrow.

    body of the entry = length of the index (4 bytes) · index (MessagePack) · columns, one after the other

Each column is one Arrow IPC record batch message with a single field, compressed by lz4. An agent cuts columns out by their
lengths, and skips a batch whose zone map shows that no row matches a reader's conditions. Index and columns are users' bytes:
bounds are checked here, columns are validated by whoever decodes them. Source: decision 0035.
"""

import struct
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

MAX_COLUMNS: Final = 4_096
MAX_INDEX_BYTES: Final = 1 << 20
MAX_ZONE_TEXT: Final = 64
"""Characters of a text in a zone map; longer ones are shortened to a bound."""

MAX_CONDITIONS: Final = 64
MAX_VALUES: Final = 1_000

IS_NULL: Final = "IS NULL"
IS_NOT_NULL: Final = "IS NOT NULL"
IN: Final = "IN"
STARTS_WITH: Final = "LIKE"

INDEX_LENGTH: Final = struct.Struct(">I")

Bound = str | int | float | bool
_Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]


class ColumnEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One column of a stored batch.

    Args:
        length: bytes of its IPC message.
        crc: CRC32C of these bytes.
        nulls: number of rows without a value.
        least, greatest: bounds of the values that are present; None: unknown. Times are microseconds since 1970, dates days.
    """

    length: _Size
    crc: _Size
    nulls: _Size
    least: Bound | None = None
    greatest: Bound | None = None


class ZoneCondition(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Condition of a reader, in the units of zone maps.

    Args:
        column: number of the field.
        operator: `=`, `!=`, `<`, `<=`, `>`, `>=`, `IN`, `LIKE` (a prefix), `IS NULL`, `IS NOT NULL`. Others exclude nothing.
        values: literals.
    """

    column: Annotated[int, msgspec.Meta(ge=0, lt=MAX_COLUMNS)]
    operator: Annotated[str, msgspec.Meta(max_length=16)]
    values: Annotated[tuple[Bound, ...], msgspec.Meta(max_length=MAX_VALUES)] = ()


_Columns = Annotated[tuple[ColumnEntry, ...], msgspec.Meta(max_length=MAX_COLUMNS)]
_DECODER = msgspec.msgpack.Decoder(_Columns)
_ENCODER = msgspec.msgpack.Encoder()


def encode_index(columns: Sequence[ColumnEntry]) -> bytes:
    """Return the index with its length in front."""
    raw = _ENCODER.encode(tuple(columns))
    return INDEX_LENGTH.pack(len(raw)) + raw


def index_bytes(begin: bytes, length: int) -> int:
    """Return the bytes of length and index together. Raises ValueError when they do not fit into the body.

    Args:
        begin: at least the first four bytes of the body.
        length: of the whole body.
    """
    if len(begin) < INDEX_LENGTH.size:
        raise ValueError("a batch of columns without an index")
    size: int = INDEX_LENGTH.size + INDEX_LENGTH.unpack_from(begin)[0]
    if size > min(length, MAX_INDEX_BYTES):
        raise ValueError(f"an index of {size} bytes in a body of {length}")
    return size


def decode_index(raw: bytes, length: int, rows: int) -> tuple[ColumnEntry, ...]:
    """Return the columns of a batch. Raises ValueError when index, lengths and rows do not agree.

    Args:
        raw: length and index.
        length: of the whole body, bytes.
        rows: of the batch.
    """
    try:
        columns = _DECODER.decode(raw[INDEX_LENGTH.size :])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"an index that is not readable: {error}") from None
    if len(raw) + sum(column.length for column in columns) != length or any(column.nulls > rows for column in columns):
        raise ValueError("an index that does not fit its columns")
    return columns


def may_match(columns: Sequence[ColumnEntry], rows: int, conditions: Sequence[ZoneCondition]) -> bool:
    """Return whether a row of the batch may match all conditions; False is certain."""
    return all(
        condition.column >= len(columns) or _may_match(columns[condition.column], rows, condition)
        for condition in conditions
    )


def _may_match(column: ColumnEntry, rows: int, condition: ZoneCondition) -> bool:
    if condition.operator == IS_NULL:
        return column.nulls > 0
    if condition.operator == IS_NOT_NULL:
        return column.nulls < rows
    if not condition.values:
        return condition.operator != IN
    if column.nulls == rows:
        return False  # a comparison with null is not true
    least, greatest = column.least, column.greatest
    if least is None or greatest is None:
        return True
    return any(
        not (_is_comparable(value, least) and _is_comparable(value, greatest))
        or _overlaps(condition.operator, value, least, greatest)
        for value in condition.values
    )


def _is_comparable(value: Bound, bound: Bound) -> bool:
    """Return whether two values have one order; NaN has none here."""
    if isinstance(value, bool) or isinstance(bound, bool) or isinstance(value, str) or isinstance(bound, str):
        return type(value) is type(bound)
    return value == value and bound == bound


def _overlaps(operator: str, value: "Bound", least: "Bound", greatest: "Bound") -> bool:
    """Return whether a value between the bounds may match. All three are texts, or all three are numbers."""
    if operator in ("=", IN):
        return not (_is_less(value, least) or _is_less(greatest, value))
    if operator == "!=":
        return not least == greatest == value
    if operator == "<":
        return _is_less(least, value)
    if operator == "<=":
        return not _is_less(value, least)
    if operator == ">":
        return _is_less(value, greatest)
    if operator == ">=":
        return not _is_less(greatest, value)
    if operator == STARTS_WITH and isinstance(value, str) and isinstance(least, str) and isinstance(greatest, str):
        return least[: len(value)] <= value <= greatest
    return True


def _is_less(left: "Bound", right: "Bound") -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return str(left) < str(right)
    return left < right


def text_bounds(least: str, greatest: str) -> tuple[str, str | None]:
    """Return bounds of texts, shortened: the first is not greater than `least`, the second not less than `greatest`."""
    if len(greatest) <= MAX_ZONE_TEXT:
        return least[:MAX_ZONE_TEXT], greatest
    last = ord(greatest[MAX_ZONE_TEXT - 1]) + 1
    if 0xD800 <= last <= 0xDFFF:
        last = 0xE000  # surrogates have no UTF-8 form
    above = greatest[: MAX_ZONE_TEXT - 1] + chr(last) if last <= 0x10FFFF else None
    return least[:MAX_ZONE_TEXT], above
