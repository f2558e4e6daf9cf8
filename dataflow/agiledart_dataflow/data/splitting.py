"""Columns by the instance that owns their key: each different key of a batch is looked up once."""

from typing import TYPE_CHECKING, Any

from agiledart_dataflow.data.batch import Held, Order
from agiledart_dataflow.data.grouping import grouped, key_values
from agiledart_dataflow.data.lazy import late

if TYPE_CHECKING:
    import numpy as np
else:
    np = late("numpy")


def split_columns(held: Any, order: Order, key_of: Any, router: Any, count: int) -> list[tuple[Held, Order]]:
    """(columns, what goes with them) for each of `count` instances, in the order in which they were.

    Args:
        held: the columns.
        order: what goes with the rows.
        key_of: the key as expressions.
        router: key → instance.
        count: how many instances.
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
