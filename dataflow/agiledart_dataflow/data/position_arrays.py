"""Positions of many rows as one int64 array, a row each: used beside columns, so that no tuple is made for a row in transit.

On the wire each component of the positions is the little-endian int64 of all rows. One of the first four, which name the record, is
a single number when it is the same for all rows, as kind and source mostly are. So the unpacked array is not much larger than the
frame.
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
    """Return the positions of a source's records with these event times (ms) and the sequence numbers from `first` on."""
    positions = np.empty((count, 4), np.int64)
    positions[:, 0] = times
    positions[:, 1] = RECORD
    positions[:, 2] = source
    positions[:, 3] = np.arange(first, first + count)
    return positions


def is_strictly_ascending(positions: "Array") -> bool:
    """Return whether each position is above the one before it."""
    above: Any = np.zeros(max(0, len(positions) - 1), bool)
    for component in positions.T[::-1]:
        before, after = component[:-1], component[1:]
        above = (after > before) | ((after == before) & above)
    return bool(above.all())


def packed(positions: "Array | Sequence[Position]") -> Packed:
    """Return the wire form of positions, at least one."""
    array = np.asarray(positions, np.int64)
    return [
        int(component[0])
        if number < CAUSE_LENGTH and (component == component[0]).all()
        else component.astype("<i8").tobytes()
        for number, component in enumerate(array.T)
    ]


def unpacked(components: Packed, count: int) -> "Array":
    """Return the positions of `count` rows that `packed` wrote. Raises ValueError or OverflowError for everything else."""
    if len(components) < CAUSE_LENGTH or any(type(component) is int for component in components[CAUSE_LENGTH:]):
        raise ValueError("positions that name no record, or with one path for all rows")
    if any(isinstance(component, bytes) and len(component) != 8 * count for component in components):
        raise ValueError(f"components of more or fewer than {count} positions")
    positions = np.empty((count, len(components)), np.int64)
    for number, component in enumerate(components):
        positions[:, number] = np.frombuffer(component, "<i8") if isinstance(component, bytes) else component
    return positions
