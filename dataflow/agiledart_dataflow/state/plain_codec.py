"""`PlainCodec`: plain data of a step as bytes that state their format, decoded again to their original types.

A dataclass or Struct is encoded by the names of its fields and a NamedTuple by their order, so a field that was added later with a
default is filled in; a type that does not fit raises `StateFormatError`, which names both. Ints beyond 64 bits, as sums may be,
have no form in MessagePack: data that contains one is written in a second, slower form.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import msgpack
import msgspec

from agiledart_dataflow.user_code.user_errors import NO_RECORD, user_code_error
from agiledart_kernel.errors import OperationFailed

FORMAT: Final = 2
"""Format number of saved state; older formats are upgraded when read, newer ones refused.

    1   a ranking (`Top`) has its keys in the part without keys; an increment of windows only lists the ends that stay
    2   the keys of a ranking are in key groups; such an increment also states whether its rows come on top
"""

_PLAIN, _WIDE = 0, 1
_WIDE_INT: Final = 1
"""Code of the extension that holds an int beyond 64 bits, as hexadecimal text."""

_ENCODER = msgspec.msgpack.Encoder()
_PARTS: msgspec.msgpack.Decoder[tuple[int, int, msgspec.Raw]] = msgspec.msgpack.Decoder(tuple[int, int, msgspec.Raw])
_FORMAT_FIRST: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])
_READ_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError)


class StateFormatError(OperationFailed):
    """Error: this code cannot read saved state; the message names the step and the reason."""


class PlainCodec:
    """Codec of the plain data of one step.

    Args:
        step: for messages.
        make_type: returns the type of the data; called when bytes are first read.
    """

    def __init__(self, step: str, make_type: Callable[[], Any]) -> None:
        self._step = step
        self._make_type = make_type

    def encode(self, plain: Any) -> bytes:
        """Return the bytes. Raises `UserCodeError` for a value that is not plain data."""
        try:
            try:
                return _ENCODER.encode((FORMAT, _PLAIN, plain))
            except OverflowError:
                return _packed((FORMAT, _WIDE, plain))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise user_code_error(f"{self._step}, its state", None, error, NO_RECORD) from error

    @staticmethod
    def encode_items(items: list[Any]) -> tuple[bytes, bool]:
        """Return the items of a list, encoded and concatenated, and whether they are in the second form.

        Data with some items in the second form is read as if all of it were; items in the first form mean the same there.
        Raises TypeError, ValueError, OverflowError, RecursionError for a value that is not plain data.
        """
        head = len(array_header(len(items)))
        try:
            return _ENCODER.encode(items)[head:], False
        except OverflowError:
            return _packed(items)[head:], True

    def decode(self, data: bytes) -> Any:
        """Return the data. Raises `StateFormatError`."""
        decoder = self._decoder
        try:
            written = msgspec.msgpack.decode(_FORMAT_FIRST.decode(data)[0], type=int)
            if written <= FORMAT:
                _, kind, body = _PARTS.decode(data)
                return decoder.decode(body) if kind == _PLAIN else self._widened(body)
        except (*_READ_ERRORS, IndexError) as error:
            raise StateFormatError(
                f"the saved state of {self._step} is not of the type that the code has now: {error}; give added fields"
                " a default, or rename the step"
            ) from None
        raise StateFormatError(
            f"the saved state of {self._step} has format {written}; this version reads up to {FORMAT}"
        )

    @cached_property
    def _type(self) -> Any:
        return self._make_type()

    @cached_property
    def _decoder(self) -> "msgspec.msgpack.Decoder[Any]":
        return msgspec.msgpack.Decoder(self._type)

    def _widened(self, body: msgspec.Raw) -> Any:
        return msgspec.convert(
            msgspec.msgpack.decode(body, ext_hook=_read_extension), self._type, builtin_types=(bytes,)
        )


def begin_of(*, is_wide: bool) -> bytes:
    """Return the bytes before data that was encoded in parts (`encode_items`, `array_header`)."""
    return array_header(3) + bytes((FORMAT, _WIDE if is_wide else _PLAIN))


def array_header(count: int) -> bytes:
    """Return the MessagePack header of an array."""
    if count < 1 << 4:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


def bytes_header(size: int) -> bytes:
    """Return the MessagePack header of bytes."""
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1)
    return b"\xc5" + size.to_bytes(2) if size < 1 << 16 else b"\xc6" + size.to_bytes(4)


def int_bytes(number: int) -> bytes:
    """Return a number in MessagePack."""
    return _ENCODER.encode(number)


def _packed(plain: Any) -> bytes:
    """Return data with wide ints as MessagePack: this packer has a hook for unknown values, where msgspec raises."""
    packed: bytes = msgpack.packb(msgspec.to_builtins(plain, builtin_types=(bytes,)), default=_wide)
    return packed


def _wide(number: Any) -> msgpack.ExtType:
    if not isinstance(number, int):
        raise TypeError(f"{type(number).__name__} is not plain data")
    return msgpack.ExtType(_WIDE_INT, hex(number).encode())


def _read_extension(code: int, data: memoryview) -> int:
    if code != _WIDE_INT:
        raise ValueError(f"extension {code} is not known")
    return int(bytes(data), 16)
