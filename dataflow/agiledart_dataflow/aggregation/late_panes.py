"""Tumbling and hopping windows that accept late rows: a row within `allowed_lateness` of a window's end renews its result.

Later rows go to the side output `late`.
"""

from collections.abc import Callable
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.data.rows import Pane
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.operators.keyed import Context, KeyedOperator

State = dict[int, Any]
"""End of a window that is open or still accepts late rows → the aggregate's state."""


class LatePanes(KeyedOperator[Any, Any, State, Pane[Any, Any]]):
    """Operator that puts out each window when it closes, and again at each late row that it takes."""

    keeps_state_after_error = False

    def __init__(
        self, window: Panes, aggregator: Aggregator[Any, Any, Any], flat: Callable[[Any], Any] | None = None
    ) -> None:
        self._window, self._aggregator = window, aggregator
        self._flat = flat  # makes the row of a window with named results

    def initial(self, key: Any) -> State:
        return {}

    def on_record(self, key: Any, record: Any, state: State, context: Context[Pane[Any, Any]]) -> None:
        now, lateness_ms = context.time_ms, self._window.lateness_ms
        added: State = {}
        for end in self._window.ends(context.event_time_ms):
            if end + lateness_ms <= now:
                continue
            if end not in state:
                context.timer_at(end if end > now else end + lateness_ms, end)
            added[end] = self._aggregator.add(state[end] if end in state else self._aggregator.create(), record)
            if end <= now:
                context.emit_result(self._pane, key, end, added[end])
        state |= added
        if not added:
            context.emit_to("late", record)
            if not state:
                context.forget()

    def on_timer(self, key: Any, payload: Any, state: State, context: Context[Pane[Any, Any]]) -> None:
        now = context.time_ms
        closes, stays = now == payload, now == payload and self._window.lateness_ms > 0
        window_state = state[payload] if stays else state.pop(payload)
        if stays:
            context.timer_at(payload + self._window.lateness_ms, payload)
        elif not state:
            context.forget()
        if closes:
            context.emit(self._pane(key, payload, window_state))

    def _pane(self, key: Any, end: int, state: Any) -> Pane[Any, Any]:
        pane = Pane(key, self._window.start_of(end), end, self._aggregator.result(state))
        return pane if self._flat is None else self._flat(pane)

    def to_plain(self, state: State) -> Any:
        return {end: self._aggregator.to_plain(aggregate_state) for end, aggregate_state in state.items()}

    def from_plain(self, plain: Any) -> State:
        return {end: self._aggregator.from_plain(aggregate_state) for end, aggregate_state in plain.items()}
