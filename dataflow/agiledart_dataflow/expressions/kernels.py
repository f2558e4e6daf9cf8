"""NumPy kernels of the functions of expressions, for the batches in which they give exactly Python's result.

A kernel takes (kinds, options, *arguments): arrays without None, or a plain number for a constant. It raises `UnsupportedBatch`
where Python's result could be another one.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.column import EARLIEST_US, LATEST_US
from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.expressions.text_kernels import TEXT_KERNELS, UnsupportedBatch

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.column import Array
else:
    np = lazy_import("numpy")
    Array = Any

_EXACT = 2**53
"""Ints up to this size have an exact double."""

_LEAST = -(2**63)
_SECOND_US = 1_000_000


def _bounds(value: Any) -> tuple[int, int]:
    """Return the least and greatest of an array of ints, or of one int."""
    if isinstance(value, int):
        return value, value
    return (int(value.min()), int(value.max())) if len(value) else (0, 0)


def _largest(value: Any) -> int:
    low, high = _bounds(value)
    return max(-low, high)


def _as_float(value: Any, kind: str) -> Any:
    """Return ints beside floats as floats, as Python converts them."""
    if kind == "float":
        return value
    return float(value) if isinstance(value, int) else value.astype(np.float64)


def _add(kinds: Any, options: Any, a: Any, b: Any) -> Any:
    if "float" in kinds:
        return _as_float(a, kinds[0]) + _as_float(b, kinds[1])
    result = a + b
    if len(result) and int(((a ^ result) & (b ^ result)).min()) < 0:
        raise UnsupportedBatch
    return _in_range(result, kinds)


def _subtract(kinds: Any, options: Any, a: Any, b: Any) -> Any:
    if "float" in kinds:
        return _as_float(a, kinds[0]) - _as_float(b, kinds[1])
    result = a - b
    if len(result) and int(((a ^ b) & (a ^ result)).min()) < 0:
        raise UnsupportedBatch
    return _in_range(result, kinds)


def _in_range(result: "Array", kinds: Any) -> "Array":
    """Return the result; a time must stay within the years 1 to 9999."""
    gives_time = len(result) and kinds in (("time", "span"), ("span", "time"))
    if gives_time and (int(result.min()) < EARLIEST_US or int(result.max()) > LATEST_US):
        raise UnsupportedBatch
    return result


def _multiply(kinds: Any, options: Any, a: Any, b: Any) -> Any:
    if "float" in kinds:
        return _as_float(a, kinds[0]) * _as_float(b, kinds[1])
    if _largest(a) * _largest(b) > 2**63 - 1:
        raise UnsupportedBatch
    return a * b


def _nonzero(b: Any) -> None:
    if not np.all(b):
        raise UnsupportedBatch


def _divide(kinds: Any, options: Any, a: Any, b: Any) -> Any:
    _nonzero(b)
    if kinds == ("int", "int") and max(_largest(a), _largest(b)) > _EXACT:
        raise UnsupportedBatch
    return _as_float(a, kinds[0]) / _as_float(b, kinds[1])


def _floor_divide(kinds: Any, options: Any, a: Any, b: Any) -> Any:
    _nonzero(b)
    if "float" in kinds:
        a, b = _finite(_as_float(a, kinds[0])), _finite(_as_float(b, kinds[1]))
        return np.floor_divide(a, b)
    if _bounds(a)[0] == _LEAST:
        raise UnsupportedBatch
    return a // b


def _modulo(kinds: Any, options: Any, a: Any, b: Any) -> Any:
    _nonzero(b)
    if "float" in kinds:
        a, b = _finite(_as_float(a, kinds[0])), _finite(_as_float(b, kinds[1]))
        return np.remainder(a, b)
    return a % b


def _finite(value: Any) -> Any:
    if not np.all(np.isfinite(value)):
        raise UnsupportedBatch
    return value


def _compare(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def kernel(kinds: Any, options: Any, a: Any, b: Any) -> Any:
        if kinds in (("int", "float"), ("float", "int")):
            whole = a if kinds[0] == "int" else b
            if _largest(whole) > _EXACT:
                raise UnsupportedBatch
        return compare(a, b)

    return kernel


def _negative(kinds: Any, options: Any, a: Any) -> Any:
    if kinds[0] != "float" and _bounds(a)[0] == _LEAST:
        raise UnsupportedBatch
    return -a


def _absolute(kinds: Any, options: Any, a: Any) -> Any:
    if kinds[0] != "float" and _bounds(a)[0] == _LEAST:
        raise UnsupportedBatch
    return np.abs(a)


def _whole(a: "Array") -> "Array":
    """Return floats without a fraction as ints."""
    if len(a) and not float(np.max(np.abs(a))) < 2.0**63:  # NaN, too
        raise UnsupportedBatch
    return a.astype(np.int64)


def _round(kinds: Any, options: Any, a: Any) -> Any:
    (digits,) = options
    if digits is None:
        return a if kinds[0] == "int" else _whole(np.rint(a))
    if kinds[0] == "int" and digits >= 0:
        return a
    raise UnsupportedBatch


def _floor(kinds: Any, options: Any, a: Any) -> Any:
    return a if kinds[0] == "int" else _whole(np.floor(a))


def _ceil(kinds: Any, options: Any, a: Any) -> Any:
    return a if kinds[0] == "int" else _whole(np.ceil(a))


def _sqrt(kinds: Any, options: Any, a: Any) -> Any:
    a = _as_float(a, kinds[0])
    if np.any(a < 0.0):
        raise UnsupportedBatch
    return np.sqrt(a)


def _cast(kinds: Any, options: Any, a: Any) -> Any:
    (to,) = options
    kind = kinds[0]
    if kind not in ("int", "float", "bool") or to is str:
        raise UnsupportedBatch
    if to is bool:
        return a if kind == "bool" else a != 0
    if to is float:
        return a if kind == "float" else a.astype(np.float64)
    return _whole(np.trunc(a)) if kind == "float" else a.astype(np.int64, copy=False)


def _minimum(kinds: Any, options: Any, first: Any, *others: Any) -> Any:
    least = first
    for other in others:
        least = np.where(other < least, other, least)
    return _typed(least, kinds[0])


def _maximum(kinds: Any, options: Any, first: Any, *others: Any) -> Any:
    greatest = first
    for other in others:
        greatest = np.where(other > greatest, other, greatest)
    return _typed(greatest, kinds[0])


def _typed(value: Any, kind: str) -> "Array":
    if kind in ("text", "bytes"):
        raise UnsupportedBatch
    array: Array = value
    return array


def _is_in(kinds: Any, options: Any, a: Any) -> Any:
    (values,) = options
    if kinds[0] not in ("int", "float") or any(
        type(value) is not (int if kinds[0] == "int" else float) for value in values
    ):
        raise UnsupportedBatch
    return np.isin(a, np.array(values, np.int64 if kinds[0] == "int" else np.float64))


def _dates(unit: str) -> Callable[["Array"], "Array"]:
    return lambda a: a.view("datetime64[us]").astype(f"datetime64[{unit}]").astype(np.int64)


def _date_part(part: Callable[["Array"], Any]) -> Callable[..., Any]:
    return lambda kinds, options, a: part(a)


def _day_of_month(a: "Array") -> "Array":
    days = a.view("datetime64[us]").astype("datetime64[D]")
    number: Array = (days - days.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64) + 1
    return number


def _truncate(kinds: Any, options: Any, a: Any) -> Any:
    to = options[0] // timedelta(microseconds=1)
    if to >= 2**63:
        raise UnsupportedBatch
    result = a - a % to
    if len(result) and int(result.min()) < EARLIEST_US:
        raise UnsupportedBatch
    return result


def _total_seconds(kinds: Any, options: Any, a: Any) -> Any:
    if _largest(a) > _EXACT:
        raise UnsupportedBatch
    return a / _SECOND_US


KERNELS: dict[str, Callable[..., Any]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _divide,
    "//": _floor_divide,
    "%": _modulo,
    "==": _compare(lambda a, b: a == b),
    "!=": _compare(lambda a, b: a != b),
    "<": _compare(lambda a, b: a < b),
    "<=": _compare(lambda a, b: a <= b),
    ">": _compare(lambda a, b: a > b),
    ">=": _compare(lambda a, b: a >= b),
    "neg": _negative,
    "abs": _absolute,
    "round": _round,
    "floor": _floor,
    "ceil": _ceil,
    "sqrt": _sqrt,
    "cast": _cast,
    "minimum": _minimum,
    "maximum": _maximum,
    "not": lambda kinds, options, a: ~a,
    "is_in": _is_in,
    "year": _date_part(lambda a: _dates("Y")(a) + 1970),
    "month": _date_part(lambda a: _dates("M")(a) % 12 + 1),
    "day": _date_part(_day_of_month),
    "weekday": _date_part(lambda a: (_dates("D")(a) + 3) % 7),
    "hour": _date_part(lambda a: a // (3_600 * _SECOND_US) % 24),
    "minute": _date_part(lambda a: a // (60 * _SECOND_US) % 60),
    "second": _date_part(lambda a: a // _SECOND_US % 60),
    "millisecond": _date_part(lambda a: a % _SECOND_US // 1_000),
    "truncate": _truncate,
    "total_seconds": _total_seconds,
}
"""Kernels by name; `kernel_of` finds the kernels of texts in `TEXT_KERNELS`."""


def kernel_of(name: str, kind: str) -> Callable[..., Any] | None:
    """Return the kernel of a function whose first argument is of a kind; None when it runs value by value."""
    return TEXT_KERNELS.get(name) if kind in ("text", "bytes") else KERNELS.get(name)
