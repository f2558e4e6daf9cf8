"""Formats `json` and `msgpack`: an object fills a row's fields by name; an array of objects is several rows."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from agiledart_connectors.codecs.decoder_options import PLAIN_OPTIONS, DecoderOptions
from agiledart_connectors.codecs.encodings import payload_text
from agiledart_connectors.codecs.malformed_examples import (
    FIELD,
    FORM,
    NUMBER,
    TIME,
    TYPE,
    MalformedError,
    MalformedPart,
    PartlyMalformedError,
    bounded_repr,
)
from agiledart_connectors.codecs.row_shape import RowShape
from agiledart_dataflow.data.plain_values import check_plain
from agiledart_dataflow.data.schema import generic, is_dict

_PATH: Final = re.compile(r" - at `\$?(.*)`$")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_MISSING: Final = re.compile(r"Object missing required field `(.*?)`")
_EXPECTED: Final = re.compile(r"Expected `(.*?)`")

_WORDS: Final = {
    "datetime": "time",
    "str": "text",
    "object": "object with names",
    "dict": "object with names",
    "array": "list",
    "float": "number",
}


_LONG: Final = re.compile(rb"\d{19}")
"""Only then an integer may be one that does not fit 64 bits, and cannot travel."""


class JsonDecoder:
    """JSON → rows.

    Args:
        row_type: of the rows.
        options: the encoding, and the zone of times that state none.

    Raises:
        ConfigurationError: no JSON can become such a row.
    """

    word = "JSON"
    _may_be_large = True
    _one: Callable[[bytes], Any]
    _lines: Callable[[bytes], list[Any]]
    _parts: Callable[[bytes], list[msgspec.Raw]]

    def __init__(self, row_type: Any, options: DecoderOptions = PLAIN_OPTIONS) -> None:
        shape = RowShape(row_type, options.zone)
        self._encoding = "" if options.is_utf8 else options.encoding
        self._make = shape.make
        is_record = isinstance(shape.comes, type) and issubclass(shape.comes, msgspec.Struct)
        self._is_loose = is_dict(row_type)
        self._takes_arrays = is_record or self._is_loose
        self._names = _names_of(shape.comes)
        self._open(shape.comes)

    def _open(self, comes: Any) -> None:
        decoder = msgspec.json.Decoder(comes)
        self._one, self._lines = decoder.decode, decoder.decode_lines
        self._parts = msgspec.json.Decoder(generic(list, msgspec.Raw)).decode
        self._plain: Any = msgspec.json.decode

    def rows(self, payload: bytes, wall_ns: int) -> list[Any]:
        if self._encoding and self._may_be_large:
            payload = payload_text(payload, self._encoding).encode()
        if self._takes_arrays and self._is_array(payload):
            try:
                parts = self._parts(payload)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                self._one_row(payload, wall_ns)  # raises what is wrong
                raise
            return self._rows_of(parts, wall_ns)
        return [self._one_row(payload, wall_ns)]

    def _rows_of(self, elements: list[msgspec.Raw], wall_ns: int) -> list[Any]:
        """The rows of an array's elements. Raises `PartlyMalformedError`: some make none."""
        rows: list[Any] = []
        parts: list[MalformedPart] = []
        for number, element in enumerate(elements):
            record = bytes(element)
            try:
                rows.append(self._one_row(record, wall_ns))
            except MalformedError as error:
                parts.append(MalformedPart(f"[{number}]", record, error))
            except RecursionError:
                deep = MalformedError(FORM, f"nested too deeply: {bounded_repr(record)}")
                parts.append(MalformedPart(f"[{number}]", record, deep))
        if parts:
            raise PartlyMalformedError(rows, parts)
        return rows

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        if self._encoding or _LONG.search(data):
            return None
        try:
            objects = self._lines(data)
            make = self._make
            return objects if make is None else [make(item, wall_ns) for item in objects]
        except (msgspec.MsgspecError, MalformedError, UnicodeDecodeError, RecursionError):
            return None

    def _is_array(self, payload: bytes) -> bool:
        return payload[:1] == b"[" or payload[:64].lstrip()[:1] == b"["

    def _one_row(self, payload: bytes, wall_ns: int) -> Any:
        try:
            decoded = self._one(payload)
            is_suspect = self._may_be_large and _LONG.search(payload) is not None
            if is_suspect and (value := _too_large(msgspec.to_builtins(decoded))) is not None:
                raise MalformedError(NUMBER, f"{bounded_repr(value)} does not fit 64 bits: {bounded_repr(payload)}")
            return decoded if self._make is None else self._make(decoded, wall_ns)
        except msgspec.ValidationError as error:
            raise self._explained(payload, str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            fault = str(error).removeprefix(f"{self.word} is malformed: ")
            raise MalformedError(FORM, f"is no {self.word} ({fault}): {bounded_repr(payload)}") from None

    def _explained(self, payload: bytes, text: str) -> MalformedError:
        """Return an error that explains a decoder's message, with the value that it is about."""
        try:
            value = self._plain(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            value = None
        path = match[1] if (match := _PATH.search(text)) else ""
        for name, index in _STEP.findall(path):
            value = _within(value, name, index)
        where = path.lstrip(".")
        if missing := _MISSING.search(text):
            name = f"{where}.{missing[1]}" if where else missing[1]
            there = sorted(value) if isinstance(value, dict) else []
            text = f"{name} is missing (there is {', '.join(map(str, there[:12])) or 'nothing'})"
            if close := get_close_matches(missing[1], [word for word in there if word not in self._names], 1):
                text += f'; is it {close[0]}? Annotated[…, Alias("{close[0]}")] says so'
            return MalformedError(FIELD, text)
        begin = f"{where}: {bounded_repr(value)}" if where else bounded_repr(payload)
        if "datetime" in text and isinstance(value, str):
            return MalformedError(TIME, f"{begin} is no time like 2013-01-31T08:00:00Z")
        if expected := _EXPECTED.search(text):
            words = [_WORDS.get(word, word) for word in expected[1].split(" | ")]
            known = list(dict.fromkeys(word for word in words if word != "null"))
            if "time" in known:
                known = ["time"]
            return MalformedError(TYPE, f"{begin} is no {' or '.join(known)}")
        return MalformedError(TYPE, f"{begin}: {_PATH.sub('', text)}")


class MsgpackDecoder(JsonDecoder):
    """MessagePack → rows, under the same rules; there are no lines."""

    word = "MessagePack"
    _may_be_large = False

    def _open(self, comes: Any) -> None:
        self._one = msgspec.msgpack.Decoder(comes).decode
        self._parts = msgspec.msgpack.Decoder(generic(list, msgspec.Raw)).decode
        self._plain = msgspec.msgpack.decode

    def lines(self, data: bytes, wall_ns: int) -> list[Any] | None:
        return None

    def _one_row(self, payload: bytes, wall_ns: int) -> Any:
        row = super()._one_row(payload, wall_ns)
        if self._is_loose:
            try:
                check_plain(row)
            except TypeError as error:
                raise MalformedError(TYPE, str(error)) from None
        return row

    def _is_array(self, payload: bytes) -> bool:
        return bool(payload) and (payload[0] & 0xF0 == 0x90 or payload[0] in (0xDC, 0xDD))


def _too_large(value: Any) -> int | None:
    """An integer in a document that does not fit 64 bits."""
    if type(value) is int:
        return value if not -(1 << 63) <= value < 1 << 64 else None
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((large for part in parts if (large := _too_large(part)) is not None), None)


def _names_of(comes: Any) -> frozenset[str]:
    if isinstance(comes, type) and issubclass(comes, msgspec.Struct):
        return frozenset(field.encode_name for field in msgspec.structs.fields(comes))
    return frozenset()


def _within(value: Any, name: str, index: str) -> Any:
    """Take one step of a path; None where the value has no such field or element."""
    if name:
        return value.get(name) if isinstance(value, dict) else None
    if not index.isdigit() or not isinstance(value, list) or int(index) >= len(value):
        return None
    return value[int(index)]
