"""Values of a Parquet file that no field can hold: found many at once, so that they cost their rows alone.

A missing value of a field that is not optional, a number beyond 64 bits, a time outside of the years 1 to 9999. Times with
nanoseconds are cut towards the past, to the microsecond, as `utc_time` has it.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agiledart_connectors.codecs.malformed_examples import FIELD, NUMBER, TIME, TYPE, bounded_repr
from agiledart_dataflow.data.batch_forms import from_arrow
from agiledart_dataflow.data.column import EARLIEST_US, LATEST_US
from agiledart_dataflow.data.column_schema import ColumnField
from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as compute
else:
    np = lazy_import("numpy")
    pa = lazy_import("pyarrow")
    compute = lazy_import("pyarrow.compute")

_MOST = (1 << 63) - 1
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}


class UnfitValue(NamedTuple):
    """A row that has no place: its number in the batch, the reason, and the fault in words."""

    row: int
    reason: str
    text: str


def fitted_array(field: ColumnField, array: Any) -> tuple[Any, list[UnfitValue]]:
    """Return an array of which `from_arrow` takes the other rows, and the rows that it cannot take."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = array.type
    unfit: list[UnfitValue] = []
    if array.null_count and not field.optional and field.kind != "object":
        unfit += [UnfitValue(int(row), FIELD, f"{field.name} is missing") for row in _places(compute.is_null(array))]
    if field.kind == "time" and pa.types.is_timestamp(kind):
        array, faults = _fitted_times(field, array)
        unfit += faults
    elif field.kind == "int" and pa.types.is_uint64(kind):
        unfit += [
            UnfitValue(int(row), NUMBER, f"{field.name}: {array[int(row)].as_py()} does not fit 64 bits")
            for row in _places(compute.greater(array, pa.scalar(_MOST, pa.uint64())))
        ]
    elif field.kind == "object":
        unfit += _unfit_objects(field, array)
    return array, unfit


def _places(mask: Any) -> Any:
    return np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))


def _fitted_times(field: ColumnField, array: Any) -> tuple[Any, list[UnfitValue]]:
    """Return times in microseconds; those outside of the calendar are unfit."""
    unit, zone = array.type.unit, array.type.tz
    numbers = array.cast(pa.int64()) if not array.null_count else compute.fill_null(array.cast(pa.int64()), 0)
    raw = numbers.to_numpy(zero_copy_only=False)
    if unit == "ns":
        raw = raw // 1_000
        out = np.zeros(len(raw), bool)
    else:
        factor = _MICROSECONDS.get(unit, 1)
        out = (raw > LATEST_US // factor) | (raw < -(-EARLIEST_US // factor))
        raw = np.where(out, 0, raw) * factor
    valid = compute.is_valid(array).to_numpy(zero_copy_only=False)
    times = pa.array(raw, pa.int64(), mask=~valid).view(pa.timestamp("us", zone))
    unfit = [
        UnfitValue(
            int(row), TIME, f"{field.name}: {numbers[int(row)].as_py()} {unit} is no time of the years 1 to 9999"
        )
        for row in np.flatnonzero(out & valid)
    ]
    return times, unfit


def _unfit_objects(field: ColumnField, array: Any) -> list[UnfitValue]:
    try:
        from_arrow(field, array)
    except TypeError:
        pass
    else:
        return []
    unfit = []
    for row, value in enumerate(array.to_pylist()):
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            reason, text = (FIELD, "is missing") if value is None else (TYPE, f"{bounded_repr(value)}: {error}")
            unfit.append(UnfitValue(row, reason, f"{field.name}{' ' if value is None else ': '}{text}"))
    return unfit
