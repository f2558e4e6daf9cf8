"""Joins by key: within a window, within an interval of time, or with the newest row of a table. Branch 0 is left, 1 is right.

A pair comes out with the record that completes it (interval, lookup) or when the window closes, left row before right
row.
"""

from itertools import product
from typing import Any, Literal

from agiledart_dataflow.data.rows import Joined
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.operators.keyed import Context, KeyedOperator

How = Literal["inner", "left", "outer"]
"""Which rows without a partner come out: none, those of the left side, those of both sides."""

Pairs = Context[Joined[Any, Any, Any]]

WindowState = dict[int, tuple[list[Any], list[Any]]]
"""End of an open window → its left rows, its right rows."""


class WindowJoin(KeyedOperator[Any, Any, WindowState, Joined[Any, Any, Any]]):
    """Join of all pairs of rows of one window and key, put out when the window closes."""

    def __init__(self, window: Panes, how: How) -> None:
        self._window, self._how = window, how

    def initial(self, key: Any) -> WindowState:
        return {}

    def on_record(self, key: Any, record: Any, state: WindowState, context: Pairs) -> None:
        for end in self._window.ends(context.time_ms):
            if end not in state:
                state[end] = ([], [])
                context.timer_at(end, end)
            state[end][context.branch].append(record)

    def on_timer(self, key: Any, payload: Any, state: WindowState, context: Pairs) -> None:
        left, right = state.pop(payload)
        lefts: list[Any] = left or ([None] if self._how == "outer" else [])
        rights: list[Any] = right or ([None] if self._how != "inner" else [])
        for left_row, right_row in product(lefts, rights):
            context.emit(Joined(key, left_row, right_row))
        if not state:
            context.forget()


IntervalState = tuple[list[list[Any]], list[list[Any]]]
"""Left rows as [time, row, has a partner], right rows as [time, row], oldest first."""

_EXPIRY = "expiry"
_OVER = "over"


class IntervalJoin(KeyedOperator[Any, Any, IntervalState, Joined[Any, Any, Any]]):
    """Join of pairs whose right row is `earliest_ms` to `latest_ms` after the left one (below zero: before)."""

    def __init__(self, earliest_ms: int, latest_ms: int, how: How) -> None:
        self._earliest_ms, self._latest_ms, self._how = earliest_ms, latest_ms, how
        self._left_stays_ms = max(latest_ms, 0)
        self._right_stays_ms = max(-earliest_ms, 0)

    def initial(self, key: Any) -> IntervalState:
        return ([], [])

    def on_record(self, key: Any, record: Any, state: IntervalState, context: Pairs) -> None:
        lefts, rights = state
        now = context.time_ms
        self._prune(state, now)
        if context.branch:
            rights.append([now, record])
            for left in lefts:
                if self._earliest_ms <= now - left[0] <= self._latest_ms:
                    left[2] = True
                    context.emit(Joined(key, left[1], record))
        else:
            left = [now, record, False]
            lefts.append(left)
            for time_ms, right in rights:
                if self._earliest_ms <= time_ms - now <= self._latest_ms:
                    left[2] = True
                    context.emit(Joined(key, record, right))
            if self._how == "left":
                context.timer_at(now + self._left_stays_ms + 1, _OVER)
        context.timer_at(now + max(self._left_stays_ms, self._right_stays_ms) + 1, name=_EXPIRY)

    def on_timer(self, key: Any, payload: Any, state: IntervalState, context: Pairs) -> None:
        if payload == _OVER:  # these timers fire in the order of their rows, so it is the first row's
            _, row, met = state[0].pop(0)
            if not met:
                context.emit(Joined(key, row, None))
        self._prune(state, context.time_ms)
        if not state[0] and not state[1]:
            context.forget()

    def _prune(self, state: IntervalState, now: int) -> None:
        """Drop rows that can find no partner any more; a left row that must come out alone has a timer of its own."""
        lefts, rights = state
        while self._how == "inner" and lefts and lefts[0][0] + self._left_stays_ms < now:
            lefts.pop(0)
        while rights and rights[0][0] + self._right_stays_ms < now:
            rights.pop(0)

    def from_plain(self, plain: Any) -> IntervalState:
        return [[*left] for left in plain[0]], [[*right] for right in plain[1]]


class LookupJoin(KeyedOperator[Any, Any, list[Any], Joined[Any, Any, Any]]):
    """Join of each left row with the newest right row of its key at that position; right rows alone put out nothing."""

    def __init__(self, how: How) -> None:
        self._how = how

    def initial(self, key: Any) -> list[Any]:
        return []

    def on_record(self, key: Any, record: Any, state: list[Any], context: Pairs) -> None:
        if context.branch:
            state[:] = [record]
            return
        if state:
            context.emit(Joined(key, record, state[0]))
            return
        if self._how != "inner":
            context.emit(Joined(key, record, None))
        context.forget()  # a key that the table does not have takes no memory
