"""Distinct and deduplicate: keep the first row of each key, for ever or once per time to live."""

from typing import Any

from agiledart_dataflow.operators.keyed import Context, KeyedOperator

State = list[bool]
"""Empty before the first row, then [True]."""


class DistinctOperator(KeyedOperator[Any, Any, State, Any]):
    """Operator that passes the first row of a key, and the next first row after `time_to_live_ms` (0: never again)."""

    keeps_state_after_error = False

    def __init__(self, time_to_live_ms: int = 0) -> None:
        self._time_to_live_ms = time_to_live_ms

    def initial(self, key: Any) -> State:
        return []

    def on_record(self, key: Any, record: Any, state: State, context: Context[Any]) -> None:
        if state:
            return
        state.append(True)
        context.emit(record)
        if self._time_to_live_ms:
            context.timer_at(context.time_ms + self._time_to_live_ms)

    def on_timer(self, key: Any, payload: Any, state: State, context: Context[Any]) -> None:
        context.forget()
