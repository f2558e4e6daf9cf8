"""A register map: which registers of a Modbus device hold what. A TOML file, a table for each value:

    [temperature]
    address = 0              # as the protocol counts, from 0
    kind = "input"           # holding (the usual), input, coil, discrete
    type = "int16"           # uint16 (the usual), int16, uint32, int32, uint64, int64, float32, float64
    scale = 0.1              # value = number × scale + offset
    offset = 0
    words = "little"         # of several registers the low one first; "big", the usual: the high one

Contiguous registers are read with one request.
"""

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from agiledart_kernel.errors import ConfigurationError, OperationFailed

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 4_096
MAX_ADDRESS: Final = 65_535
MOST_REGISTERS, MOST_BITS = 125, 2_000
"""Bounds of one request (Modbus Application Protocol 1.1b3, sections 6.1 to 6.4)."""

WORDS: Final = {
    "int16": 1, "uint16": 1, "int32": 2, "uint32": 2, "float32": 2, "int64": 4, "uint64": 4, "float64": 4,
}  # fmt: skip
"""Type → registers."""

KINDS: Final = ("holding", "input", "coil", "discrete")
_BITS: Final = ("coil", "discrete")
_KEYS: Final = ("address", "kind", "offset", "scale", "type", "words")


@dataclass(frozen=True)
class DeviceValue:
    """One value of a device. `type` is "" for a bit; `scale` and `offset` are None where nothing is to be computed."""

    name: str
    kind: str
    address: int
    type: str
    scale: float | None
    offset: float | None
    words: str

    @property
    def length(self) -> int:
        """Registers or bits that it takes."""
        return WORDS.get(self.type, 1)


@dataclass(frozen=True)
class RegisterRead:
    """Registers or bits that are read at one time, and the values in them."""

    kind: str
    address: int
    count: int
    values: tuple[DeviceValue, ...]


def read_map(path: str) -> list[RegisterRead]:
    """Return the requests that read a map's values.

    Raises `OperationFailed` (no such file), `ConfigurationError` (not a register map).
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise OperationFailed(f"the register map {path} cannot be read: {error.strerror or error}") from None
    if len(text) > MAX_BYTES:
        raise ConfigurationError(f"the register map {path} has more than {MAX_BYTES:,} bytes")
    try:
        tables = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"the register map {path} is no TOML: {error}") from None
    if not tables or len(tables) > MAX_VALUES:
        raise ConfigurationError(
            f"the register map {path} names {len(tables):,} values; 1 to {MAX_VALUES:,} are possible"
        )
    return register_reads([_value(path, name, table) for name, table in tables.items()])


def register_reads(values: list[DeviceValue]) -> list[RegisterRead]:
    """Return the fewest requests that read no unnamed register: devices refuse those."""
    reads: list[RegisterRead] = []
    for value in sorted(values, key=lambda value: (KINDS.index(value.kind), value.address)):
        end = value.address + value.length
        last = reads[-1] if reads else None
        most = MOST_BITS if value.kind in _BITS else MOST_REGISTERS
        follows = last is not None and last.kind == value.kind and value.address <= last.address + last.count
        if last is not None and follows and end - last.address <= most:
            count = max(last.count, end - last.address)
            reads[-1] = RegisterRead(last.kind, last.address, count, (*last.values, value))
        else:
            reads.append(RegisterRead(value.kind, value.address, value.length, (value,)))
    return reads


def _value(path: str, name: str, table: Any) -> DeviceValue:
    def fault(text: str) -> ConfigurationError:
        return ConfigurationError(f"the register map {path}: {name}: {text}")

    if not isinstance(table, dict):
        raise fault(f"write a table:  [{name}]  and below it  address = …")
    for key in table:
        if key not in _KEYS:
            close = get_close_matches(key, _KEYS, 1)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise fault(f"there is no key {key!r}.{meant} There are {', '.join(_KEYS)}")
    kind = table.get("kind", "holding")
    if kind not in KINDS:
        raise fault(f"kind is one of {', '.join(KINDS)}, not {kind!r}")
    type_ = "" if kind in _BITS else table.get("type", "uint16")
    if type_ not in WORDS and kind not in _BITS:
        raise fault(f"type is one of {', '.join(WORDS)}, not {type_!r}")
    if kind in _BITS and (wrong := [key for key in ("type", "scale", "offset", "words") if key in table]):
        raise fault(f"a {kind} is true or false: it has no {wrong[0]}")
    address, words = table.get("address"), table.get("words", "big")
    last = MAX_ADDRESS + 1 - WORDS.get(type_, 1)
    if type(address) is not int or not 0 <= address <= last:
        raise fault(f"address is a number from 0 to {last:,}, not {address!r}")
    if words not in ("big", "little"):
        raise fault(f'words is "big" or "little", not {words!r}')
    numbers = [table.get(key) for key in ("scale", "offset")]
    for key, number in zip(("scale", "offset"), numbers, strict=True):
        if number is not None and type(number) not in (int, float):
            raise fault(f"{key} is a number, not {number!r}")
    scale, offset = numbers
    return DeviceValue(name, kind, address, type_, scale, offset, words)
