"""Results that no other process could read, such as a sum beyond 64 bits: found where they leave a step whose policy goes on.

Without such a policy they end the application where they are sent.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from agiledart_dataflow.data.batch import Order, listed

_ENCODE = msgspec.msgpack.Encoder().encode

OnUnfit = Callable[[Exception], None]


def without_unfit(held: list[Any], order: Order, on_unfit: OnUnfit) -> tuple[list[Any], Order]:
    """Return the rows that can travel, and what goes with them; call `on_unfit` for each of the others."""
    try:
        _ENCODE(held)
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    else:
        return held, order
    places = None if order is None else listed(order)
    rows: list[Any] = []
    order_of_rows: list[Any] = []
    for number, row in enumerate(held):
        try:
            _ENCODE(row)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            on_unfit(type(error)(f"{error}: {_bounded(row)}"))
            continue
        rows.append(row)
        if places is not None:
            order_of_rows.append(places[number])
    return rows, None if places is None else order_of_rows


def _bounded(row: Any) -> str:
    text = repr(row)
    return text if len(text) <= 200 else f"{text[:198]} …"
