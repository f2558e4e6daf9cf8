"""`Batch`: some rows of one stream, what goes with each of them, and the mark up to which the stream is complete.

The rows are a list or `Columns`; each form is made from the other when it is first asked for, and kept. What goes with
them (`order`) is what the edge carries: nothing, event times, or positions (`edge_contents.py`).
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
    """Rows in the order in which they are to be taken. Without rows it is a pure punctuation, or a barrier.

    Args:
        held: the rows in one of the two forms.
        order: parallel to the rows; positions are strictly ascending, above every earlier mark of the channel, at or
            below `mark`.
        mark: nothing at or below it will follow. `START` promises nothing.
        barrier: number of a checkpoint that passes here; 0: none. A barrier has no rows.
        converted: the rows in the other form, once somebody has asked for it.
        change: of a barrier: the name of the plan that holds behind it, where it is another one.
        ascends: an instance of this process has made it, out of what was in order: whoever merges it need not look once more.
    """

    held: Any
    order: Any
    watermark: Position
    barrier: int = 0
    converted: Any = None
    change: bytes = b""
    ascends: bool = False

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        barrier = f", barrier {self.barrier}" if self.barrier else ""
        return f"Batch({len(self.held)} rows, mark {self.watermark}{barrier})"

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
        """The rows as columns. Raises what `Columns.from_rows` raises."""
        held = self.held
        if type(held) is list:
            if self.converted is None:
                self.converted = as_columns(held, row_type)
            held = self.converted
        columns: Columns = held
        return columns

    def pieces(self, limit: int = MAX_BATCH_ROWS) -> Iterator["Batch"]:
        """The same records in batches of at most `limit` rows.

        The mark of each but the last covers its last row where positions are carried, and promises nothing elsewhere.
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
    """Either form as a list."""
    return held if type(held) is list else held.rows()  # type: ignore[union-attr]  # `type() is` narrows one side only


def as_columns(held: Held, row_type: Any) -> "Columns":
    """Either form as columns."""
    if not isinstance(held, list):
        return held
    from agiledart_dataflow.data.columns import Columns  # NumPy is loaded only where it is used

    return Columns.from_rows(held, row_type)


def part_of(held: Held, start: int, stop: int) -> Held:
    """Some consecutive rows, in the form in which they are."""
    return held[start:stop] if type(held) is list else held.slice(start, stop)  # type: ignore[union-attr]  # as above


def listed(order: Order) -> Any:
    """What goes with rows, as a list (an array beside columns becomes one)."""
    if order is None or type(order) is list:
        return order
    return order.tolist() if order.ndim == 1 else list(map(tuple, order.tolist()))


def has_positions(order: Order) -> bool:
    """Do positions go with rows (at least one), and not times or nothing?"""
    if order is None or not len(order):
        return False
    return type(order[0]) is tuple if type(order) is list else bool(order.ndim == 2)


def place(order: Order, number: int) -> Position:
    """The position of one row."""
    if type(order) is list:
        listed_one: Position = order[number]
        return listed_one
    return tuple(order[number].tolist())


def joined_rows(parts: Sequence[Held]) -> Held:
    """Rows of several batches as one: columns when all are, else a list."""
    if len(parts) == 1:
        return parts[0]
    if any(type(part) is list for part in parts):
        return list(chain.from_iterable(as_rows(part) for part in parts))
    from agiledart_dataflow.data.columns import Columns  # they are columns, so it is loaded already

    columns: list[Any] = list(parts)
    return Columns.concatenate(columns)


def joined_order(orders: Sequence[Order]) -> Order:
    """What goes with the rows of several batches of one edge, as one."""
    if len(orders) == 1 or orders[0] is None:
        return orders[0]
    if not any(type(order) is list for order in orders) and len({order.shape[1:] for order in orders}) == 1:
        return np.concatenate(orders)
    return list(chain.from_iterable(listed(order) for order in orders))


def concatenated(batches: Sequence[Batch]) -> Batch:
    """Consecutive batches of one channel as one."""
    if len(batches) == 1:
        return batches[0]
    with_rows = [batch for batch in batches if len(batch)] or batches[-1:]
    return Batch(
        joined_rows([batch.held for batch in with_rows]),
        joined_order([batch.order for batch in with_rows]),
        max(batch.watermark for batch in batches),
    )
