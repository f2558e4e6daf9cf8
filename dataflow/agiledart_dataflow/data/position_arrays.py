"""Positions of many rows as one int64 array, a row each: what goes with columns, so that no tuple is made for a row on its way.

On the wire each element of the positions is the little-endian int64 of all rows; of the first four, which name the record, it is
a number when it is the same for all rows, as kind and source mostly are. So what is unpacked is not much larger than the frame.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.position import CAUSE_LENGTH, RECORD, Position

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

Packed = list[int | bytes]


def record_positions(times: Any, source: int, first: int, count: int) -> "Array":
    """Of the records of a source with these event times (ms) and the sequence numbers from `first` on."""
    positions = np.empty((count, 4), np.int64)
    positions[:, 0] = times
    positions[:, 1] = RECORD
    positions[:, 2] = source
    positions[:, 3] = np.arange(first, first + count)
    return positions


def is_strictly_ascending(positions: "Array") -> bool:
    """Is each position above the one before it?"""
    above: Any = np.zeros(max(0, len(positions) - 1), bool)
    for element in positions.T[::-1]:
        before, after = element[:-1], element[1:]
        above = (after > before) | ((after == before) & above)
    return bool(above.all())


def packed(positions: "Array | Sequence[Position]") -> Packed:
    """As they travel; at least one."""
    array = np.asarray(positions, np.int64)
    return [
        int(element[0]) if number < CAUSE_LENGTH and (element == element[0]).all() else element.astype("<i8").tobytes()
        for number, element in enumerate(array.T)
    ]


def unpacked(elements: Packed, count: int) -> "Array":
    """The positions of rows that `packed` wrote. Raises ValueError or OverflowError for everything else."""
    if len(elements) < CAUSE_LENGTH or any(type(element) is int for element in elements[CAUSE_LENGTH:]):
        raise ValueError("positions that name no record, or with a path that is said once for all")
    if any(isinstance(element, bytes) and len(element) != 8 * count for element in elements):
        raise ValueError(f"elements of more or fewer than {count} positions")
    positions = np.empty((count, len(elements)), np.int64)
    for number, element in enumerate(elements):
        positions[:, number] = np.frombuffer(element, "<i8") if isinstance(element, bytes) else element
    return positions
