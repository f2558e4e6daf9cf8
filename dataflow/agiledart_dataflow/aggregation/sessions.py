"""Session windows: the rows of a key until none comes for `gap`. [first, last + gap) is put out when the gap has passed."""

from collections.abc import Callable
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.data.rows import Pane
from agiledart_dataflow.operators.keyed import Context, KeyedOperator

_GAP = "gap"

State = list[Any]
"""[time of the first row, of the last, the aggregate's state]; empty before the first row."""


class SessionWindow(KeyedOperator[Any, Any, State, Pane[Any, Any]]):
    """Operator with one session at a time for each key, because rows come in order of time."""

    keeps_state_after_error = False

    def __init__(
        self, gap_ms: int, aggregator: Aggregator[Any, Any, Any], flat: Callable[[Any], Any] | None = None
    ) -> None:
        self._flat = flat  # makes the row of a window with named results
        self._gap_ms = gap_ms
        self._aggregator = aggregator

    def initial(self, key: Any) -> State:
        return []

    def on_record(self, key: Any, record: Any, state: State, context: Context[Pane[Any, Any]]) -> None:
        time_ms = context.time_ms
        added = self._aggregator.add(state[2] if state else self._aggregator.create(), record)
        state[:] = [state[0] if state else time_ms, time_ms, added]
        context.timer_at(time_ms + self._gap_ms, name=_GAP)

    def on_timer(self, key: Any, payload: Any, state: State, context: Context[Pane[Any, Any]]) -> None:
        context.forget()
        pane = Pane(key, state[0], state[1] + self._gap_ms, self._aggregator.result(state[2]))
        context.emit(pane if self._flat is None else self._flat(pane))

    def to_plain(self, state: State) -> Any:
        return [*state[:2], self._aggregator.to_plain(state[2])] if state else None

    def from_plain(self, plain: Any) -> State:
        return [] if plain is None else [*plain[:2], self._aggregator.from_plain(plain[2])]
