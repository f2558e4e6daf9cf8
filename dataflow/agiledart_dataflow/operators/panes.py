"""Hopping and tumbling windows: each key's rows of [start, end), put out once, when the mark passes the end.

A pane closes at (end, 0, source, number, path) of its first row: unique for each key, and the same in whatever instance
the key lives. END_OF_INPUT closes all panes.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from agiledart_dataflow.aggregators import Aggregator
from agiledart_dataflow.operators.base import Output
from agiledart_dataflow.position import Position
from agiledart_dataflow.rows import Pane
from agiledart_dataflow.statistics import StepCounts
from agiledart_dataflow.windows import Panes


class PaneWindow:
    """Keeps an aggregate of each (window, key) and puts out a `Pane` when the window closes."""

    def __init__(
        self, name: str, key_of: Callable[[Any], Any], window: Panes, aggregator: Aggregator[Any, Any, Any]
    ) -> None:
        self.name = name
        self.counts = StepCounts()
        self.function: Callable[..., Any] | None = key_of
        self._key_of = key_of
        self._window = window
        self._aggregator = aggregator
        self._states: dict[tuple[int, Any], Any] = {}
        self._closings: list[tuple[Position, Any]] = []

    def run(self, rows: list[Any], positions: list[Position], mark: Position) -> Output:
        out: list[Any] = []
        at: list[Position] = []
        states, closings = self._states, self._closings
        key_of, aggregator, ends_of = self._key_of, self._aggregator, self._window.ends
        ends, time_ms = range(0), None
        for row, position in zip(rows, positions, strict=True):
            if closings and closings[0][0] <= position:
                self._close(position, out, at)
            key = key_of(row)
            if position[0] != time_ms:
                time_ms = position[0]
                ends = ends_of(time_ms)
            for end in ends:
                pane = (end, key)
                if pane in states:
                    states[pane] = aggregator.add(states[pane], row)
                else:
                    states[pane] = aggregator.add(aggregator.create(), row)
                    heappush(closings, ((end, 0, *position[2:]), key))
        self._close(mark, out, at)
        self.counts.rows_in += len(rows)
        self.counts.rows_out += len(out)
        return out, at

    def _close(self, until: Position, out: list[Any], at: list[Position]) -> None:
        closings, size_ms = self._closings, self._window.size_ms
        while closings and closings[0][0] <= until:
            position, key = heappop(closings)
            end = position[0]
            state = self._states.pop((end, key))
            out.append(Pane(key, end - size_ms, end, self._aggregator.result(state)))
            at.append(position)

    @property
    def state_keys(self) -> int:
        return len(self._states)

    def snapshot(self) -> Any:
        to_plain = self._aggregator.to_plain
        return [
            (position, key, to_plain(self._states[position[0], key]))
            for position, key in sorted(self._closings, key=_first)
        ]

    def restore(self, plain: Any) -> None:
        self._closings = [(position, key) for position, key, _ in plain]
        heapify(self._closings)
        self._states = {(position[0], key): self._aggregator.from_plain(state) for position, key, state in plain}


def _first(closing: tuple[Position, Any]) -> Position:
    return closing[0]
