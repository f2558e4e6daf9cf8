"""Count windows: `size` rows of a key, a new window every `every` rows. A window that is not full at the end has no result."""

from collections.abc import Callable
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.data.rows import Pane
from agiledart_dataflow.operators.keyed import Context, KeyedOperator

State = list[Any]
"""[rows until the next window begins, open windows, oldest first: [time of the first row, rows, the aggregate's state]]."""


class CountWindow(KeyedOperator[Any, Any, State, Pane[Any, Any]]):
    """Operator that counts the rows of each key alone, so the result does not depend on parallelism."""

    keeps_state_after_error = False

    def __init__(
        self, size: int, every: int, aggregator: Aggregator[Any, Any, Any], flat: Callable[[Any], Any] | None = None
    ) -> None:
        self._flat = flat  # makes the row of a window with named results
        self._size, self._every = size, every
        self._aggregator = aggregator

    def initial(self, key: Any) -> State:
        return [0, []]

    def on_record(self, key: Any, record: Any, state: State, context: Context[Pane[Any, Any]]) -> None:
        aggregator = self._aggregator
        left, windows = state
        if not left:
            left, windows = self._every, [*windows, [context.time_ms, 0, aggregator.create()]]
        windows = [[first_ms, rows + 1, aggregator.add(total, record)] for first_ms, rows, total in windows]
        full = windows.pop(0) if windows and windows[0][1] == self._size else None
        state[:] = left - 1, windows  # a full window is over, whether it has a result or not
        if full is not None:
            context.emit_result(self._pane, key, full[0], context.time_ms + 1, full[2])
        if not windows and not state[0]:
            context.forget()  # as if the key were new

    def _pane(self, key: Any, start_ms: int, end_ms: int, total: Any) -> Any:
        pane = Pane(key, start_ms, end_ms, self._aggregator.result(total))
        return pane if self._flat is None else self._flat(pane)

    def to_plain(self, state: State) -> Any:
        return [
            state[0],
            [[first, rows, self._aggregator.to_plain(aggregate_state)] for first, rows, aggregate_state in state[1]],
        ]

    def from_plain(self, plain: Any) -> State:
        return [
            plain[0],
            [[first, rows, self._aggregator.from_plain(aggregate_state)] for first, rows, aggregate_state in plain[1]],
        ]
