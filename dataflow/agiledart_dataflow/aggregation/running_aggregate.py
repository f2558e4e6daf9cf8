"""Running aggregates and reductions: the value of a key over all its rows so far, anew at each row."""

from collections.abc import Callable
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator
from agiledart_dataflow.data.rows import Change
from agiledart_dataflow.operators.keyed import Context, KeyedOperator

State = list[Any]
"""[the aggregate's state]; empty before the first row."""


class RunningAggregate(KeyedOperator[Any, Any, State, Change[Any, Any, Any]]):
    """Operator that puts out a `Change` at each row, so that `top` can follow."""

    keeps_state_after_error = False

    def __init__(self, aggregator: Aggregator[Any, Any, Any]) -> None:
        self._aggregator = aggregator

    def initial(self, key: Any) -> State:
        return []

    def on_record(self, key: Any, record: Any, state: State, context: Context[Change[Any, Any, Any]]) -> None:
        added = self._aggregator.add(state[0] if state else self._aggregator.create(), record)
        context.emit(Change(key, self._aggregator.result(added), record))
        state[:] = [added]

    def to_plain(self, state: State) -> Any:
        return [self._aggregator.to_plain(aggregate_state) for aggregate_state in state]

    def from_plain(self, plain: Any) -> State:
        return [self._aggregator.from_plain(aggregate_state) for aggregate_state in plain]


class Reduction(Aggregator[Any, list[Any], Any]):
    """Rows joined two by two, in order, by a function (row so far, next row) → row."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    def create(self) -> list[Any]:
        return []

    def add(self, state: list[Any], row: Any) -> list[Any]:
        return [self.function(state[0], row)] if state else [row]

    def result(self, state: list[Any]) -> Any:
        return state[0]
