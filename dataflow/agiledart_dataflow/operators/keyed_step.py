"""`KeyedStep`: runs a `KeyedOperator` with state by key, timers in event time, side outputs, time to live and error policy.

Outputs of a record at position p have p + (−1, n), those of a timer its position + (n,). A timer's position is its
time, kind 0, the path of the record that set it, and a number that counts the key's timers. So it is unique, the same
for any parallelism, and no longer when a timer sets the next one. A timer always has an entry, because `forget` leaves
the entry in place while timers wait.
"""

from collections.abc import Callable
from typing import Any

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.position import EXPIRY, Position, end_of_time, is_final
from agiledart_dataflow.operators.base import OnOperatorError, Output, StoreBackedState
from agiledart_dataflow.operators.keyed import Context, KeyedOperator
from agiledart_dataflow.state.entries import NOTHING, KeyEntry, NamedTimer
from agiledart_dataflow.state.store import KeyedStore
from agiledart_dataflow.user_code.user_errors import NO_RECORD
from agiledart_kernel.errors import AgileDartError

TIME_TO_LIVE = "\0time to live"
"""Name of the timer that ends the state of a key; no name of a user's timer begins like it."""

LATE = "late"
"""Tag of the side output of rows that came too late."""

Side = dict[str, tuple[list[Any], list[Position]]]

_NO_ROWS: tuple[list[Any], list[Position]] = ([], [])


class KeyedStep(StoreBackedState[KeyedStore]):
    """Runner of a `KeyedOperator`.

    Args:
        name: name of the step.
        key_of: row → key, one function for each input.
        operator: the user's or built-in operator.
        store: holds state and timers.
        time_to_live_ms: the state of a key is dropped this long after its last record (0: never).
        has_lateness: positions contain how late a row was (`Context.event_time_ms`).
        on_operator_error: called when the operator raises at a record; without it the error goes to the caller.
        sieves: the operator is a filter: rows that do not pass count as dropped, not as taken into the state.
    """

    def __init__(
        self,
        name: str,
        key_of: tuple[Callable[[Any], Any], ...],
        operator: KeyedOperator[Any, Any, Any, Any],
        store: KeyedStore,
        *,
        time_to_live_ms: int = 0,
        has_lateness: bool = False,
        on_operator_error: OnOperatorError | None = None,
        sieves: bool = False,
    ) -> None:
        self.name = name
        self.counts = StepCounts()
        self.function: Callable[..., Any] | None = operator.on_record
        self.sides: Side = {}
        self.store = store
        self.context: Context[Any] = Context(
            has_lateness=has_lateness, no_result=None if on_operator_error is None else self._report_failed_result
        )
        self._key_of = key_of
        self._operator = operator
        self._time_to_live_ms = time_to_live_ms
        self._on_operator_error = on_operator_error
        self._sieves = sieves

    def run(self, rows: list[Any], positions: list[Position], watermark: Position) -> Output:
        out: list[Any] = []
        at: list[Position] = []
        near = self.store.near
        branches = self._key_of if len(self._key_of) > 1 else None
        key_of, treat, on_operator_error = self._key_of[0], self._treat, self._on_operator_error
        refused = 0
        late = len(self.sides.get(LATE, _NO_ROWS)[0])
        for row, position in zip(rows, positions, strict=True):
            while near and near[0][0] <= position:
                self._fire(out, at)
            if branches is not None:
                key_of = branches[position[-1]]
            if on_operator_error is None:
                treat(key_of(row), row, position, out, at)
                continue
            try:
                treat(key_of(row), row, position, out, at)
            except AgileDartError:
                raise  # of the store: the state of other rows is at stake, so no policy may drop it
            except Exception as error:  # noqa: BLE001  user code may raise anything; the step's policy decides
                refused += 1
                on_operator_error(error, row, position)
        passed = len(out)
        reached = end_of_time(watermark)
        while near and near[0][0] <= reached:
            self._fire(out, at)
        if is_final(watermark):
            self.context.at_end = True
            while near:
                self._fire(out, at)
            self.context.at_end = False
        counts = self.counts
        counts.rows_in += len(rows)
        counts.rows_out += len(out)
        late = len(self.sides.get(LATE, _NO_ROWS)[0]) - late
        counts.late += late
        if self._sieves:
            counts.dropped += len(rows) - refused - passed
        else:
            counts.taken += len(rows) - refused - late
        return out, at

    def _treat(self, key: Any, row: Any, position: Position, out: list[Any], at: list[Position]) -> None:
        store, context = self.store, self.context
        entry = store.get(key)
        is_new = entry is None
        if entry is None:
            entry = KeyEntry()
            store.save(key, entry)
        context.position = position
        try:
            if entry.state is NOTHING:
                entry.state = self._operator.initial(key)
            self._operator.on_record(key, row, entry.state, context)
        except BaseException:
            self._undo(key, entry, position, is_new=is_new)
            raise
        given = context._rows  # noqa: SLF001  the context is its step's own
        if len(given) == 1 and not context._side:  # noqa: SLF001  as above
            out.append(given[0])  # the usual case, without loops
            at.append((*position, -1, 0))
            context._rows = []  # noqa: SLF001  as above
        elif given or context._side:  # noqa: SLF001  as above
            self._put_out((*position, -1), out, at)
        if self._time_to_live_ms:
            context._timers.append((position[0] + self._time_to_live_ms, None, TIME_TO_LIVE))  # noqa: SLF001  as above
        if context._timers or context._cancels or context._forgets or store.saves:  # noqa: SLF001  as above
            self._apply_requests(key, entry, position)

    def _fire(self, out: list[Any], at: list[Position]) -> None:
        position, key, row, name = self.store.pop()  # `row` is the payload; errors show it as the record
        entry = self.store.get(key)
        assert entry is not None  # an entry stays while one of its timers waits
        entry.waiting -= 1
        if name:
            timer = entry.named.get(name) if entry.named else None
            # The queue may hold an older position of a named timer: moving one does not search the queue.
            if timer is None or timer.queued != position or timer.wanted is None:
                if timer is not None and timer.queued == position:
                    self._unname(entry, name)
                self._apply_requests(key, entry, position[:-1])
                return
            if timer.wanted != position:
                timer.queued = timer.wanted
                self._wait(key, entry, (timer.wanted, key, None, name))
                return
            self._unname(entry, name)
            row = timer.payload
        context = self.context
        context.position = position
        if name == TIME_TO_LIVE:
            context.forget()
        else:
            if entry.state is NOTHING:
                entry.state = self._operator.initial(key)
            try:
                self._operator.on_timer(key, row, entry.state, context)
            except Exception as error:
                if self._on_operator_error is None:
                    raise
                context._rows, context._side = [], []  # noqa: SLF001  what it did to the state and its timers stays
                self.counts.failed += 1
                self._on_operator_error(error, NO_RECORD, position)
            if context._rows or context._side:  # noqa: SLF001  as above
                self._put_out(position, out, at)
            if context.at_end:
                context._timers = []  # noqa: SLF001  as above
        self._apply_requests(key, entry, position[:-1])

    def _put_out(self, stem: Position, out: list[Any], at: list[Position]) -> None:
        """Append the context's rows to the outputs, with positions that begin with `stem`."""
        context = self.context
        for number, value in enumerate(context._rows):  # noqa: SLF001  as above
            out.append(value)
            at.append((*stem, number))
        context._rows = []  # noqa: SLF001  as above
        if context._side:  # noqa: SLF001  as above
            for number, (tag, value) in enumerate(context._side):  # noqa: SLF001  as above
                side_rows, side_at = self.sides.setdefault(tag, ([], []))
                side_rows.append(value)
                side_at.append((*stem, number))
            context._side = []  # noqa: SLF001  as above

    def _apply_requests(self, key: Any, entry: KeyEntry, root: Position) -> None:
        """Carry out the operator's requests: move, set and cancel timers, and forget the key."""
        context = self.context
        if context._cancels:  # noqa: SLF001  as above
            for name in context._cancels:  # noqa: SLF001  as above
                if entry.named and name in entry.named:
                    entry.named[name].wanted = None
            context._cancels = []  # noqa: SLF001  as above
        if context._forgets:  # noqa: SLF001  as above
            context._forgets = False  # noqa: SLF001  as above
            context._timers = [timer for timer in context._timers if not timer[2]]  # noqa: SLF001  as above
            entry.state = NOTHING
            for timer in (entry.named or {}).values():
                timer.wanted = None
        if context._timers:  # noqa: SLF001  as above
            for time_ms, payload, name in context._timers:  # noqa: SLF001  as above
                self._set(key, entry, (time_ms, EXPIRY, *root[2:], entry.number), payload, name)
                entry.number += 1
            context._timers = []  # noqa: SLF001  as above
        if entry.state is NOTHING and not entry.waiting:
            self.store.drop(key)
        elif self.store.saves:
            self.store.save(key, entry)

    def _set(self, key: Any, entry: KeyEntry, position: Position, payload: Any, name: str) -> None:
        if not name:
            self._wait(key, entry, (position, key, payload, ""))
            return
        if entry.named is None:
            entry.named = {}
        timer = entry.named.get(name)
        if timer is not None and timer.queued <= position:
            timer.wanted, timer.payload = position, payload  # the queue brings it up at the latest then
            return
        entry.named[name] = NamedTimer(position, position, payload)
        self._wait(key, entry, (position, key, None, name))

    def _wait(self, key: Any, entry: KeyEntry, timer: tuple[Position, Any, Any, str]) -> None:
        entry.waiting += 1
        if self.store.saves:
            self.store.save(key, entry)
        self.store.push(timer)

    @staticmethod
    def _unname(entry: KeyEntry, name: str) -> None:
        assert entry.named is not None
        del entry.named[name]
        if not entry.named:
            entry.named = None

    def _report_failed_result(self, error: Exception, position: Position) -> None:
        """Report a result that raised; no record is at fault."""
        assert self._on_operator_error is not None  # the context calls this only with a handler
        self.counts.failed += 1
        self._on_operator_error(error, NO_RECORD, position)

    def _undo(self, key: Any, entry: KeyEntry, position: Position, *, is_new: bool) -> None:
        """Discard the requests of a call that raised. A state that stays is left as the call left it, with its time to live."""
        context = self.context
        context._rows, context._side = [], []  # noqa: SLF001  as above
        context._timers, context._cancels, context._forgets = [], [], False  # noqa: SLF001  as above
        keeps = self._operator.keeps_state_after_error
        if is_new and (entry.state is NOTHING or not keeps):
            self.store.drop(key)
            return
        if keeps and self._time_to_live_ms:
            context._timers.append((position[0] + self._time_to_live_ms, None, TIME_TO_LIVE))  # noqa: SLF001  as above
        self._apply_requests(key, entry, position)
