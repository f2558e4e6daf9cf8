"""Arrow kernels of the functions of texts, for the batches in which they give exactly Python's result.

Arguments are pyarrow arrays without None, or a Python text for a constant. In Python, letters beyond ASCII change case in other
ways, and more characters are white space: such batches run value by value.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.column import numbers_of
from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    np = lazy_import("numpy")
    pa = lazy_import("pyarrow")
    pc = lazy_import("pyarrow.compute")


class UnsupportedBatch(Exception):
    """Signal: this kernel cannot handle this batch."""


def _bools(array: Any) -> Any:
    return numbers_of(array)


def _compare(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def kernel(kinds: Any, options: Any, a: Any, b: Any) -> Any:
        return _bools(compare(a, b))

    return kernel


def _ascii(array: Any) -> None:
    """Raise `UnsupportedBatch` unless all texts are printable ASCII."""
    data = array.buffers()[2]
    if data is None or not len(array):
        return
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    characters = np.frombuffer(data, np.uint8)[int(offsets[0]) : int(offsets[-1])]
    if len(characters) and (int(characters.max()) > 0x7E or int(characters.min()) < 0x20):
        raise UnsupportedBatch


def _lower(kinds: Any, options: Any, a: Any) -> Any:
    _ascii(a)
    return pc.ascii_lower(a)


def _upper(kinds: Any, options: Any, a: Any) -> Any:
    _ascii(a)
    return pc.ascii_upper(a)


def _strip(kinds: Any, options: Any, a: Any) -> Any:
    _ascii(a)
    return pc.ascii_trim(a, characters=" ")


def _matches(match: Callable[[Any, str], Any]) -> Callable[..., Any]:
    def kernel(kinds: Any, options: Any, a: Any, part: Any) -> Any:
        if not isinstance(part, str) or not isinstance(a, pa.Array):
            raise UnsupportedBatch
        return _bools(match(a, part))

    return kernel


def _length(kinds: Any, options: Any, a: Any) -> Any:
    lengths = pc.utf8_length(a) if kinds[0] == "text" else pc.binary_length(a)
    return numbers_of(lengths.cast(pa.int64()))


def _replace(kinds: Any, options: Any, a: Any, old: Any, new: Any) -> Any:
    if not (isinstance(old, str) and isinstance(new, str) and isinstance(a, pa.Array)) or not old:
        raise UnsupportedBatch
    return pc.replace_substring(a, pattern=old, replacement=new)


def _slice(kinds: Any, options: Any, a: Any) -> Any:
    start, stop = options
    if kinds[0] != "text" or (start or 0) < 0 or (stop is not None and stop < (start or 0)):
        raise UnsupportedBatch
    return pc.utf8_slice_codeunits(a, start or 0, stop)


def _is_in(kinds: Any, options: Any, a: Any) -> Any:
    (values,) = options
    return _bools(pc.is_in(a, value_set=pa.array(values, a.type)))


def _concat(kinds: Any, options: Any, a: Any, b: Any) -> Any:
    return pc.binary_join_element_wise(a, b, "")


TEXT_KERNELS: dict[str, Callable[..., Any]] = {
    "==": _compare(lambda a, b: pc.equal(a, b)),
    "!=": _compare(lambda a, b: pc.not_equal(a, b)),
    "<": _compare(lambda a, b: pc.less(a, b)),
    "<=": _compare(lambda a, b: pc.less_equal(a, b)),
    ">": _compare(lambda a, b: pc.greater(a, b)),
    ">=": _compare(lambda a, b: pc.greater_equal(a, b)),
    "+": _concat,
    "lower": _lower,
    "upper": _upper,
    "strip": _strip,
    "contains": _matches(lambda a, part: pc.match_substring(a, pattern=part)),
    "starts_with": _matches(lambda a, part: pc.starts_with(a, pattern=part)),
    "ends_with": _matches(lambda a, part: pc.ends_with(a, pattern=part)),
    "length": _length,
    "replace": _replace,
    "slice": _slice,
    "is_in": _is_in,
}
"""Kernels by name of the function."""
