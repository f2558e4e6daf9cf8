"""Sliding windows: the rows of (t − size, t] of each key. A row that enters and one that leaves are both changes.

A row at position (t, …) leaves at (t + size, 0, …), before the records of that time. Outputs append 0 to the position of a
leaving row and 1 to that of an entering one, because a row from another window may enter at exactly the position at
which one leaves.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator, with_remove
from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.position import Position, end_of_time
from agiledart_dataflow.data.rows import Change
from agiledart_dataflow.operators.base import Mishap, Output
from agiledart_dataflow.user_code.user_errors import NO_RECORD

_LEAVES = (0,)
_ENTERS = (1,)


class _Window:
    """One key's rows: their number, the aggregate's state, and the rows themselves when it cannot remove."""

    __slots__ = ("rows", "size", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        self.size = 0
        self.rows: dict[Position, Any] = {}


class SlidingWindow:
    """Keeps an aggregate of each key's window and puts out a `Change` whenever it may differ."""

    def __init__(
        self,
        name: str,
        key_of: Callable[[Any], Any],
        size_ms: int,
        aggregator: Aggregator[Any, Any, Any],
        mishap: Mishap | None = None,
    ) -> None:
        self.name = name
        self.counts = StepCounts()
        self.function: Callable[..., Any] | None = key_of
        self._key_of = key_of
        self._size_ms = size_ms
        self._aggregator = aggregator = with_remove(aggregator)
        self._mishap = mishap  # told of rows and results that raised; without it errors go on
        self._keeps_rows = not aggregator.can_remove
        self._windows: dict[Any, _Window] = {}
        self._leaving: deque[tuple[Position, Any, Any]] = deque()

    def run(self, rows: list[Any], positions: list[Position], mark: Position) -> Output:
        out: list[Any] = []
        at: list[Position] = []
        leaving, windows, size_ms = self._leaving, self._windows, self._size_ms
        key_of, aggregator = self._key_of, self._aggregator
        add, result = aggregator.add, aggregator.result
        mishap, refused = self._mishap, 0
        for row, position in zip(rows, positions, strict=True):
            if leaving and leaving[0][0] <= position:
                self._leave(position, out, at)
            try:
                key = key_of(row)
                window = windows.get(key)
                state = add(aggregator.create() if window is None else window.state, row)
                try:
                    value = result(state)
                except Exception:
                    if window is not None and not self._keeps_rows:  # the state may have been changed in place
                        window.state = aggregator.remove(state, row)
                    raise
            except Exception as error:
                if mishap is None:
                    raise
                refused += 1
                mishap(error, row, position)
                continue
            if window is None:
                window = windows[key] = _Window(state)
            window.state = state
            window.size += 1
            until = (position[0] + size_ms, 0, *position[2:])
            if self._keeps_rows:
                window.rows[until] = row
            leaving.append((until, key, row))
            if len(leaving) > 1 and leaving[-2][0] > until:
                self._sort_last()
            out.append(Change(key, value, row))
            at.append(position + _ENTERS)
        self._leave(end_of_time(mark), out, at)  # no time passes after the last record: END_OF_INPUT empties no window
        self.counts.rows_in += len(rows)
        self.counts.rows_out += len(out)
        self.counts.taken += len(rows) - refused
        return out, at

    def _leave(self, until: Position, out: list[Any], at: list[Position]) -> None:
        """Let rows leave whose time has come."""
        leaving, windows, aggregator = self._leaving, self._windows, self._aggregator
        while leaving and leaving[0][0] <= until:
            position, key, row = leaving.popleft()
            window = windows[key]
            window.size -= 1
            if not window.size:
                del windows[key]
                out.append(Change(key, None, None))
            else:
                if self._keeps_rows:
                    del window.rows[position]
                    window.state = self._added_up(window)
                else:
                    window.state = aggregator.remove(window.state, row)
                try:
                    value = aggregator.result(window.state)
                except Exception as error:
                    if self._mishap is None:
                        raise
                    self.counts.failed += 1
                    self._mishap(error, NO_RECORD, position)
                    continue
                out.append(Change(key, value, None))
            at.append(position + _LEAVES)

    def _added_up(self, window: _Window) -> Any:
        state = self._aggregator.create()
        for row in window.rows.values():
            state = self._aggregator.add(state, row)
        return state

    def _sort_last(self) -> None:
        """Rows of one time may leave in another order than they came:

        An expiry before a record of a lower source number.
        """
        leaving = self._leaving
        last = leaving.pop()
        behind = []
        while leaving and leaving[-1][0] > last[0]:
            behind.append(leaving.pop())
        leaving.append(last)
        leaving.extend(reversed(behind))

    @property
    def state_keys(self) -> int:
        return len(self._windows)

    def snapshot(self) -> Any:
        to_plain = self._aggregator.to_plain
        windows = [(key, window.size, to_plain(window.state)) for key, window in self._windows.items()]
        return windows, list(self._leaving)

    def restore(self, plain: Any) -> None:
        windows, leaving = plain
        self._windows = {}
        self._leaving = deque(leaving)
        for key, size, state in windows:
            window = self._windows[key] = _Window(self._aggregator.from_plain(state))
            window.size = size
        if self._keeps_rows:
            for position, key, row in sorted(self._leaving, key=_entry_order):
                self._windows[key].rows[position] = row


def _entry_order(leaving: tuple[Position, Any, Any]) -> Position:
    return leaving[0]
