"""`Batch`: some rows of one stream, their positions or times, and the watermark up to which the stream is complete.

The rows are a list or `Columns`; each form is made from the other at its first use, and kept. The data beside the rows (`order`) is
the contents of the edge: nothing, event times, or positions (`edge_contents.py`).
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from agiledart_dataflow.data.lazy_module import lazy_import
from agiledart_dataflow.data.position import START, Position, covering
from agiledart_kernel.limits import MAX_BATCH_ROWS

if TYPE_CHECKING:
    import numpy as np

    from agiledart_dataflow.data.columns import Columns
else:
    np = lazy_import("numpy")

Held: TypeAlias = "list[Any] | Columns"
"""Rows in either form."""

Order: TypeAlias = Any
"""None, a list of event times, or a list of positions; beside `Columns` also an int64 array of NumPy, of times in one dimension, of
positions in two (a row each)."""


class Batch(msgspec.Struct, gc=False):
    """Rows in the order in which they must be taken. Without rows it is a pure punctuation, or a barrier.

    Args:
        held: the rows in one of the two forms.
        order: parallel to the rows; positions are strictly ascending, above every earlier watermark of the channel, at or below
            `watermark`.
        watermark: no row at or below it will follow. `START` promises nothing.
        barrier: number of a checkpoint whose barrier this is; 0: none. A barrier has no rows.
        converted: the rows in the other form, once they were converted.
        change: of a barrier: the name of the plan that is valid after it, where the plan changes.
        overtakes: of a barrier: it needs no credit and has overtaken the rows that waited before it (decision 0014).
        ascends: an instance of this process made the batch from ordered input, so a merge need not check its order again.
    """

    held: Any
    order: Any
    watermark: Position
    barrier: int = 0
    converted: Any = None
    change: bytes = b""
    ascends: bool = False
    overtakes: bool = False

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        barrier = f", barrier {self.barrier}" if self.barrier else ""
        return f"Batch({len(self.held)} rows, watermark {self.watermark}{barrier})"

    @property
    def rows(self) -> list[Any]:
        """The rows as a list."""
        held = self.held
        if type(held) is not list:
            if self.converted is None:
                self.converted = as_rows(held)
            held = self.converted
        rows: list[Any] = held
        return rows

    def columns(self, row_type: Any) -> "Columns":
        """Return the rows as columns. Raises the errors of `Columns.from_rows`."""
        held = self.held
        if type(held) is list:
            if self.converted is None:
                self.converted = as_columns(held, row_type)
            held = self.converted
        columns: Columns = held
        return columns

    def pieces(self, limit: int = MAX_BATCH_ROWS) -> Iterator["Batch"]:
        """Yield the same records in batches of at most `limit` rows.

        The watermark of each but the last covers its last row where positions are carried, and promises nothing elsewhere.
        """
        held, order = self.held, self.order
        total = len(held)
        if total <= limit:
            yield self
            return
        positions = has_positions(order)
        for start in range(0, total, limit):
            stop = start + limit
            watermark = self.watermark if stop >= total else covering(place(order, stop - 1)) if positions else START
            yield Batch(part_of(held, start, stop), None if order is None else order[start:stop], watermark)


def as_rows(held: Held) -> list[Any]:
    """Return either form as a list."""
    return held if type(held) is list else held.rows()  # type: ignore[union-attr]  # `type() is` narrows one side only


def as_columns(held: Held, row_type: Any) -> "Columns":
    """Return either form as columns."""
    if not isinstance(held, list):
        return held
    from agiledart_dataflow.data.columns import Columns  # NumPy is loaded only where it is used

    return Columns.from_rows(held, row_type)


def part_of(held: Held, start: int, stop: int) -> Held:
    """Return some consecutive rows in their present form."""
    return held[start:stop] if type(held) is list else held.slice(start, stop)  # type: ignore[union-attr]  # as above


def listed(order: Order) -> Any:
    """Return the data beside rows as a list (an array beside columns becomes one)."""
    if order is None or type(order) is list:
        return order
    return order.tolist() if order.ndim == 1 else list(map(tuple, order.tolist()))


def has_positions(order: Order) -> bool:
    """Return whether rows (at least one) have positions, and not times or nothing."""
    if order is None or not len(order):
        return False
    return type(order[0]) is tuple if type(order) is list else bool(order.ndim == 2)


def place(order: Order, number: int) -> Position:
    """Return the position of one row."""
    if type(order) is list:
        position: Position = order[number]
        return position
    return tuple(order[number].tolist())


def joined_rows(parts: Sequence[Held]) -> Held:
    """Return the rows of several batches as one: columns when all are, else a list."""
    if len(parts) == 1:
        return parts[0]
    if any(type(part) is list for part in parts):
        return list(chain.from_iterable(as_rows(part) for part in parts))
    from agiledart_dataflow.data.columns import Columns  # the parts are columns, so the module is loaded already

    columns: list[Any] = list(parts)
    return Columns.concatenate(columns)


def joined_order(orders: Sequence[Order]) -> Order:
    """Return the data beside the rows of several batches of one edge, as one."""
    if len(orders) == 1 or orders[0] is None:
        return orders[0]
    if not any(type(order) is list for order in orders) and len({order.shape[1:] for order in orders}) == 1:
        return np.concatenate(orders)
    return list(chain.from_iterable(listed(order) for order in orders))


def concatenated(batches: Sequence[Batch]) -> Batch:
    """Return consecutive batches of one channel as one."""
    if len(batches) == 1:
        return batches[0]
    with_rows = [batch for batch in batches if len(batch)] or batches[-1:]
    return Batch(
        joined_rows([batch.held for batch in with_rows]),
        joined_order([batch.order for batch in with_rows]),
        max(batch.watermark for batch in batches),
    )
