"""Sliding windows: the rows of (t − size, t] of each key. A row that enters and a row that leaves are both changes.

A row at position (t, …) leaves at (t + size, 0, …), before the records of that time. Outputs append 0 to the position
of a leaving row and 1 to that of an entering row, because a row may enter at exactly the position at which another
leaves.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from agiledart_dataflow.aggregation.aggregators import Aggregator, with_remove
from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.position import Position, end_of_time
from agiledart_dataflow.data.rows import Change
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.operators.base import OnOperatorError, Output
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges
from agiledart_dataflow.state.indexed_state_snapshot import (
    STEP_INDEXED,
    IndexedStateSnapshot,
    KeysSnapshot,
    Run,
    all_of,
)
from agiledart_dataflow.state.key_group_indexed_state import KeyGroupIndexedState
from agiledart_dataflow.state.plain_codec import PlainCodec
from agiledart_dataflow.user_code.user_errors import NO_RECORD

_LEAVES = (0,)
_ENTERS = (1,)


class _KeyWindow:
    """One key's rows: their number, the aggregate's state, and the rows themselves when the aggregate cannot remove."""

    __slots__ = ("rows", "size", "state")

    def __init__(self, state: Any) -> None:
        self.state = state
        self.size = 0
        self.rows: dict[Position, Any] = {}


_Rows = list[tuple[Position, Any]]
"""(position at which the row leaves, row) for the rows of one key."""


class SlidingWindow(KeyGroupIndexedState[dict[Any, _Rows]]):
    """Operator that keeps an aggregate of each key's window and puts out a `Change` whenever it may differ.

    Args:
        name: name of the step.
        key_of: row → key.
        size_ms: time that a row stays.
        aggregator: computes the value of the rows.
        codec: of a key group's entries (`sliding_entry_type`).
        on_operator_error: called for rows and results that raised; without it the error goes to the caller.
    """

    def __init__(
        self,
        name: str,
        key_of: Callable[[Any], Any],
        size_ms: int,
        aggregator: Aggregator[Any, Any, Any],
        codec: PlainCodec,
        on_operator_error: OnOperatorError | None = None,
    ) -> None:
        super().__init__(codec)
        self.name = name
        self.counts = StepCounts()
        self.function: Callable[..., Any] | None = key_of
        self._key_of = key_of
        self._size_ms = size_ms
        self._aggregator = aggregator = with_remove(aggregator)
        self._on_operator_error = on_operator_error
        self._keeps_rows = not aggregator.can_remove
        self._windows: dict[Any, _KeyWindow] = {}
        self._leaving: deque[tuple[Position, Any, Any]] = deque()
        self._gone: dict[Any, None] = {}  # keys of dropped groups, whose rows are still in `_leaving`

    def run(self, rows: list[Any], positions: list[Position], watermark: Position) -> Output:
        self.rows_come()
        out: list[Any] = []
        at: list[Position] = []
        leaving, windows, size_ms = self._leaving, self._windows, self._size_ms
        key_of, aggregator = self._key_of, self._aggregator
        add, result = aggregator.add, aggregator.result
        on_operator_error, refused = self._on_operator_error, 0
        dirty_keys = self.dirty_tracker.keys if self.dirty_tracker.is_tracking else None
        for row, position in zip(rows, positions, strict=True):
            if leaving and leaving[0][0] <= position:
                self._leave(position, out, at)
            try:
                key = key_of(row)
                window = windows.get(key)
            except Exception as error:
                if on_operator_error is None:
                    raise
                refused += 1
                on_operator_error(error, row, position)
                continue
            if dirty_keys is not None and key not in dirty_keys:
                self.touch(key)
            try:
                state = add(aggregator.create() if window is None else window.state, row)
                try:
                    value = result(state)
                except Exception:
                    if window is not None and not self._keeps_rows:  # the state may have been changed in place
                        window.state = aggregator.remove(state, row)
                    raise
            except Exception as error:
                if on_operator_error is None:
                    raise
                refused += 1
                on_operator_error(error, row, position)
                continue
            if window is None:
                window = windows[key] = _KeyWindow(state)
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
        self._leave(
            end_of_time(watermark), out, at
        )  # no time passes after the last record: END_OF_INPUT empties no window
        self.bound(len(windows))
        self.counts.rows_in += len(rows)
        self.counts.rows_out += len(out)
        self.counts.taken += len(rows) - refused
        return out, at

    def _leave(self, until: Position, out: list[Any], at: list[Position]) -> None:
        """Remove the rows whose time has come."""
        leaving, windows, aggregator = self._leaving, self._windows, self._aggregator
        dirty_keys = self.dirty_tracker.keys if self.dirty_tracker.is_tracking else None
        while leaving and leaving[0][0] <= until:
            position, key, row = leaving.popleft()
            if dirty_keys is not None and key not in dirty_keys:
                self.touch(key)
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
                    if self._on_operator_error is None:
                        raise
                    self.counts.failed += 1
                    self._on_operator_error(error, NO_RECORD, position)
                    continue
                out.append(Change(key, value, None))
            at.append(position + _LEAVES)

    def _added_up(self, window: _KeyWindow) -> Any:
        state = self._aggregator.create()
        for row in window.rows.values():
            state = self._aggregator.add(state, row)
        return state

    def _sort_last(self) -> None:
        """Move the last row to its place: rows of one time may leave in another order than they came.

        Example: an expiry before a record of a lower source number.
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

    def _build_group_index(self) -> dict[int, dict[Any, _Rows]]:
        parts: dict[int, dict[Any, _Rows]] = {}
        rows_of: dict[Any, _Rows] = {}
        for key, window in self._windows.items():
            rows_of[key] = parts.setdefault(self.group_of[key], {})[key] = list(window.rows.items())
        if not self._keeps_rows:
            for until, key, row in self._leaving:
                rows_of[key].append((until, row))
        return parts

    def changes(self, keys: DirtyKeys) -> StateChanges:
        """Return the keys' windows; a key that is gone has no rows."""
        return StateChanges(all_of(self.begin_snapshot([keys])))

    def _begin_snapshot(self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys]) -> IndexedStateSnapshot:
        rows = None if self._keeps_rows else list(self._leaving)
        given = self._codec, self.group_of, lists, self._closed, waste
        return _SlidingSnapshot(*given, held=self._windows, rows=rows, aggregator=self._aggregator)

    def apply(self, changes: StateChanges) -> None:
        decoded = [(group, self._codec.decode(data)) for group, data in changes.groups]
        touched = dict.fromkeys(key for _, entries in decoded for key, *_ in entries)
        self._invalidate()
        self._restore_arrival_order()
        remaining = [leaving_row for leaving_row in self._leaving if leaving_row[1] not in touched]
        self._leaving.clear()
        self._leaving.extend(remaining)
        for key in touched:
            self._windows.pop(key, None)
        for group, entries in decoded:
            self._put(group, [entry for entry in entries if entry[2]])
        self._index, self._moved = None, True

    def _entries(self, part: dict[Any, _Rows]) -> Iterable[Any]:
        for key, rows in part.items():
            yield key, self._aggregator.to_plain(self._windows[key].state), rows

    def _put(self, group: int, entries: list[Any]) -> dict[Any, _Rows]:
        if self._gone:
            self._forget_gone()
        part: dict[Any, _Rows] = {}
        for key, state, rows in entries:
            window = self._windows[key] = _KeyWindow(self._aggregator.from_plain(state))
            window.size = len(rows)
            if self._keeps_rows:
                window.rows.update(rows)
            self._leaving.extend((until, key, row) for until, row in rows)
            part[key] = rows
        return part

    def _remove(self, part: dict[Any, _Rows]) -> None:
        for key in part:
            del self._windows[key]
        self._gone.update(dict.fromkeys(part))

    def _forget_gone(self) -> None:
        remaining = [leaving_row for leaving_row in self._leaving if leaving_row[1] not in self._gone]
        self._leaving.clear()
        self._leaving.extend(remaining)
        self._gone.clear()

    def _restore_arrival_order(self) -> None:
        if self._gone:
            self._forget_gone()
        self._leaving = deque(sorted(self._leaving, key=itemgetter(0)))


class _SlidingSnapshot(KeysSnapshot[_KeyWindow]):
    """Snapshot of all keys' windows as of a moment.

    Args:
        given: as for every `KeysSnapshot`.
        held: the windows.
        rows: a copy of the leaving rows, which is used up; None: they are in the windows.
        aggregator: makes the plain form of the states.
    """

    def __init__(
        self,
        *given: Any,
        held: dict[Any, _KeyWindow],
        rows: list[tuple[Position, Any, Any]] | None,
        aggregator: Aggregator[Any, Any, Any],
    ) -> None:
        super().__init__(*given, held=held)
        self._leaving, self._aggregator = rows, aggregator
        self._rows_of: dict[Any, _Rows] = {}

    def _runs(self) -> Iterator[Run]:
        if self._leaving is not None:
            self._leaving.reverse()
            rows_of = self._rows_of
            while self._leaving:
                for _ in range(min(len(self._leaving), STEP_INDEXED)):
                    until, key, row = self._leaving.pop()
                    if key in rows_of:
                        rows_of[key].append((until, row))
                    elif self._lists is None or self._is_asked(key):
                        rows_of[key] = [(until, row)]
                yield None, (), ()
        yield from super()._runs()

    def _describe(self, held: _KeyWindow) -> tuple[Any, _Rows]:
        return self._aggregator.to_plain(held.state), list(held.rows.items())

    def _frozen(self, plain: Any) -> Any:
        state, rows = plain
        return super()._frozen(state), rows  # rows never change

    def _entry(self, key: Any, described: tuple[Any, _Rows] | None) -> Any:
        aggregator = self._aggregator
        state, rows = (aggregator.to_plain(aggregator.create()), []) if described is None else described
        return key, state, rows if self._leaving is None else self._rows_of.pop(key, [])


def sliding_entry_type(key: Any, state: Any, row: Any) -> Any:
    """Return the type of a key group's entries, (key, plain state, [(position at which it leaves, row)]), used to decode them."""
    return generic(list, generic(tuple, key, state, generic(list, generic(tuple, Position, row))))
