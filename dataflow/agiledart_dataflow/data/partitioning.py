"""Mapping key → key group → instance. The same on every node and in every run: never by `hash()`.

Source: design of the data path (128 key groups, so that rescaling moves whole groups).
"""

import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from zlib import crc32

from agiledart_dataflow.data.batch import Held, Order, as_rows, listed
from agiledart_dataflow.data.grouping import grouped, key_values
from agiledart_dataflow.data.inline_text import ColumnFunction
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.position import Position
from agiledart_kernel.limits import KEY_GROUPS

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_import("numpy")

Owners = bytes
"""The instance of each key group, by the group's number (`state.owner_table`)."""

_REMEMBERED = 1 << 17
"""Keys whose group is remembered; beyond it the memory is cleared. Remembering costs 0.03 µs a row, computing 1 µs."""

_NAN = "NaN equals nothing, not even itself, and cannot be a key"


def canonical(key: Any) -> str:
    """Return a text that is equal exactly for equal keys.

    Raises TypeError for a value that cannot be a key (a list, NaN, an object).
    """
    if isinstance(key, str):  # a StrEnum, too, which equals its text
        return f"s{len(key)}:{str.__str__(key)}"
    if isinstance(key, int):  # bool too: True == 1, so both must be in one group
        return f"i{int(key)}"
    if isinstance(key, tuple):
        return f"({','.join([canonical(part) for part in key])})"
    if isinstance(key, float):
        return f"i{int(key)}" if not_nan(key).is_integer() else f"f{float.__repr__(key)}"
    if key is None:
        return "n"
    if isinstance(key, bytes):
        return f"b{key.hex()}"
    if isinstance(key, datetime) and key.utcoffset() is not None:  # equal instants are equal keys, in whatever zone
        return f"z{key.astimezone(UTC).isoformat()}"
    if isinstance(key, date):
        return f"d{key.isoformat()}"
    if isinstance(key, timedelta):
        return f"t{key.days}.{key.seconds}.{key.microseconds}"
    if isinstance(key, Enum):
        return f"e{type(key).__qualname__}.{key.name}"
    if isinstance(key, Decimal):
        return _canonical_decimal(key)
    if dataclasses.is_dataclass(key) and not isinstance(key, type):
        fields = [canonical(getattr(key, field.name)) for field in dataclasses.fields(key)]
        return f"c{type(key).__qualname__}({','.join(fields)})"
    raise TypeError(f"a {type(key).__name__} cannot be a key: use numbers, texts, tuples of them or frozen dataclasses")


def _canonical_decimal(key: Decimal) -> str:
    """Return the text that an equal int or float has."""
    if key.is_nan():
        raise TypeError(_NAN)
    if not key.is_finite() or float(key) == key:
        return canonical(float(key))
    numerator, denominator = key.as_integer_ratio()  # exact, where `normalize` rounds to the digits of the context
    return canonical(numerator) if denominator == 1 else f"m{numerator:x}/{denominator:x}"


def not_nan(key: float) -> float:
    """Return the key. Raises TypeError for NaN."""
    if key != key:
        raise TypeError(_NAN)
    return key


def key_group(key: Any) -> int:
    """Return the key's group, 0 … KEY_GROUPS-1."""
    return crc32(canonical(key).encode("utf-8", "surrogatepass")) % KEY_GROUPS


class KeyRouter(dict[Any, int]):
    """Table key → instance, remembered. Raises TypeError for a value that cannot be a key.

    >>> KeyRouter(owners_by_key(4))["Manhattan"] in range(4)
    True
    """

    __slots__ = ("_owners",)

    def __init__(self, owners: Owners) -> None:
        super().__init__()
        self._owners = owners

    def __missing__(self, key: Any) -> int:
        if len(self) >= _REMEMBERED:
            self.clear()
        target = self._owners[key_group(key)]
        self[key] = target
        return target


KeyFunction = Callable[[Any], Any]


def split_by_key(
    held: Held, order: Order, key_of: KeyFunction, router: KeyRouter, count: int
) -> list[tuple[Held, Order]]:
    """Split rows by the instance that owns their key: (rows, their order) for each of `count` instances."""
    function: object = key_of
    if type(held) is not list and isinstance(function, ColumnFunction):
        return _split_columns(held, order, key_of, router, count)
    rows = as_rows(held)
    parts: list[list[Any]] = [[] for _ in range(count)]
    pushes = [part.append for part in parts]
    if order is None:
        for row in rows:
            pushes[router[key_of(row)]](row)
        return [(part, None) for part in parts]
    orders: list[list[Any]] = [[] for _ in range(count)]
    puts = [part.append for part in orders]
    for row, at in zip(rows, listed(order), strict=True):
        target = router[key_of(row)]
        pushes[target](row)
        puts[target](at)
    return list(zip(parts, orders, strict=True))


def _split_columns(held: Any, order: Order, key_of: Any, router: Any, count: int) -> list[tuple[Held, Order]]:
    """Return (columns, their order) for each of `count` instances, in the original order.

    Args:
        held: the columns.
        order: data beside the rows.
        key_of: the key as expressions.
        router: key → instance.
        count: number of instances.
    """
    keys = key_of.columns(held)
    numbers, firsts = grouped(keys, len(held))
    owners = np.array([router[key] for key in key_values(keys, firsts)], dtype=np.int64)[numbers]
    parts: list[tuple[Held, Order]] = []
    for target in range(count):
        chosen = np.flatnonzero(owners == target)
        if type(order) is list:
            part_order: Order = [order[number] for number in chosen.tolist()]
        else:
            part_order = None if order is None else order[chosen]
        parts.append((held.take(chosen), part_order))
    return parts


def round_robin_group(number: int) -> int:
    """Return the group of a source's record without a key, 0 … KEY_GROUPS-1, by its sequence number.

    Successive records go to successive groups, because a slow instance has credit for a few rows only. A sender with many rows for
    one instance would wait for it, while the others have none. Each round begins a group later, so that records at even
    distances, such as the readings of every second sensor, reach all instances.
    """
    return (number + number // KEY_GROUPS) % KEY_GROUPS


def split_round_robin(
    rows: list[Any], positions: list[Position], owners: Owners, count: int
) -> list[tuple[list[Any], list[Position]]]:
    """Split rows by the instance that owns the group of their record: (rows, positions) for each of `count` instances.

    The split goes by position and not by batch: rows that come again after a restore, in other batches, must reach the same
    instance as before, or a merge would drop them as known where they never came.
    """
    parts: list[tuple[list[Any], list[Position]]] = [([], []) for _ in range(count)]
    for row, position in zip(rows, positions, strict=True):
        part_rows, part_positions = parts[owners[round_robin_group(position[3])]]
        part_rows.append(row)
        part_positions.append(position)
    return parts
