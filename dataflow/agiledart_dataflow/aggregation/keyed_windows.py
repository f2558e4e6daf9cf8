"""Windows that run as keyed operators: which operator a window needs, and the type of its state."""

from collections.abc import Callable
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.aggregation.count_windows import CountWindow
from agiledart_dataflow.aggregation.late_panes import LatePanes
from agiledart_dataflow.aggregation.operator_making import aggregate_state_type
from agiledart_dataflow.aggregation.sessions import SessionWindow
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.windows import Counted, Panes, Session, Sliding
from agiledart_dataflow.operators.keyed import KeyedOperator


def keyed_window(
    window: Sliding | Panes | Session | Counted,
    aggregator: Aggregator[Any, Any, Any],
    row_type: Any,
    flat: Callable[[Any], Any] | None = None,
    *,
    on_disk: bool = False,
) -> tuple[KeyedOperator[Any, Any, Any, Any], Any] | None:
    """(operator, type of its plain state) of a window that is one; None for sliding ones, and tumbling and hopping ones in memory.

    Args:
        window: the rows.
        aggregator: what is made of them.
        row_type: of the rows.
        flat: makes the row of a window with named results of its pane.
        on_disk: its state shall lie on disk, so it must be a keyed operator.
    """
    state = aggregate_state_type(aggregator, row_type)
    if isinstance(window, Session):
        return SessionWindow(window.gap_ms, aggregator, flat), generic(tuple, int, int, state) | None
    if isinstance(window, Counted):
        windows = generic(list, generic(tuple, int, int, state))
        return CountWindow(window.size, window.every, aggregator, flat), generic(tuple, int, windows)
    if isinstance(window, Panes) and (window.lateness_ms or on_disk):
        return LatePanes(window, aggregator, flat), generic(dict, int, state)
    return None
