"""User code with state by key and timers in event time.

Outputs of a record at position p have p + (−1, n), those of a timer its position + (n,). A timer's position is its
time, kind 0,
and the path of the record that first set it, with a number that counts the timers of the key: unique, the same for any
parallelism, and no longer when a timer sets the next one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

from agiledart_dataflow.operators.base import Output
from agiledart_dataflow.position import Position, is_final
from agiledart_dataflow.statistics import StepCounts
from agiledart_kernel.instants import event_time

K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
O = TypeVar("O")  # noqa: E741  the output's type, beside K, R and S


class Context(Generic[O]):
    """What an operator may do while it treats one record or timer; worthless afterwards.

    Attributes:
        position: of the record or timer; compare two of them to know which information is newer.
    """

    __slots__ = ("_forgets", "_rows", "_timers", "position")

    def __init__(self) -> None:
        self.position: Position = ()
        self._rows: list[O] = []
        self._timers: list[tuple[int, Any]] = []
        self._forgets = False

    @property
    def time_ms(self) -> int:
        """The event time of the record or timer."""
        return self.position[0]

    def emit(self, row: O) -> None:
        """Put out a row."""
        self._rows.append(row)

    def timer_at(self, time: int | datetime, payload: Any = None) -> None:
        """Ask for `on_timer(key, payload, …)` at an event time after the present one.

        The payload is plain data (numbers, texts, lists). At END_OF_INPUT timers that were set before still fire.

        Raises:
            ValueError: the time is not after the present.
        """
        time_ms = event_time(time)
        if time_ms <= self.position[0]:
            raise ValueError(f"a timer at {time_ms} ms is not after the present, {self.position[0]} ms")
        self._timers.append((time_ms, payload))

    def forget(self) -> None:
        """Drop the key's state after this call; the next record of the key finds a new one."""
        self._forgets = True


class KeyedOperator(ABC, Generic[K, R, S, O]):
    """A custom stateful step: keys K, records R, state S of one key, output rows O.

    Write the four types when you subclass, `class Taxis(KeyedOperator[str, Ride, TaxiState, AreaNews])`: rows and state
    cross processes, so their types must be known. The state is a dataclass or other plain data that the methods change
    in place.
    """

    @abstractmethod
    def initial(self, key: K) -> S:
        """The state of a key that was not seen before, or was forgotten."""

    @abstractmethod
    def on_record(self, key: K, record: R, state: S, context: Context[O]) -> None:
        """Treat a record; records of a key come in order of position."""

    def on_timer(self, key: K, payload: Any, state: S, context: Context[O]) -> None:
        """Treat a timer that was set with `context.timer_at`; before records of the same time."""
        raise NotImplementedError(f"{type(self).__name__} sets timers and has no on_timer")


_NOTHING: Any = object()


class _Entry:
    """One key: its state, the number of its next timer, and how many of its timers wait."""

    __slots__ = ("number", "state", "waiting")

    def __init__(self) -> None:
        self.state: Any = _NOTHING
        self.number = 0
        self.waiting = 0


class KeyedStep:
    """Runs a `KeyedOperator`."""

    def __init__(self, name: str, key_of: Callable[[Any], Any], operator: KeyedOperator[Any, Any, Any, Any]) -> None:
        self.name = name
        self.counts = StepCounts()
        self.function: Callable[..., Any] | None = operator.on_record
        self._key_of = key_of
        self._operator = operator
        self._entries: dict[Any, _Entry] = {}
        self._timers: list[tuple[Position, Any, Any]] = []
        self._context: Context[Any] = Context()

    def run(self, rows: list[Any], positions: list[Position], mark: Position) -> Output:
        out: list[Any] = []
        at: list[Position] = []
        timers, entries, context = self._timers, self._entries, self._context
        key_of, on_record, initial = self._key_of, self._operator.on_record, self._operator.initial
        for row, position in zip(rows, positions, strict=True):
            while timers and timers[0][0] <= position:
                self._fire(out, at)
            key = key_of(row)
            entry = entries.get(key)
            if entry is None:
                entry = entries[key] = _Entry()
            if entry.state is _NOTHING:
                entry.state = initial(key)
            context.position = position
            on_record(key, row, entry.state, context)
            if context._rows:  # noqa: SLF001  the context is this module's own
                for number, value in enumerate(context._rows):  # noqa: SLF001  as above
                    out.append(value)
                    at.append((*position, -1, number))
                context._rows = []  # noqa: SLF001  as above
            self._settle(key, entry, position)
        if is_final(mark):
            last = len(timers)
            for _ in range(last):
                self._fire(out, at, sets_timers=False)
        else:
            while timers and timers[0][0] <= mark:
                self._fire(out, at)
        self.counts.rows_in += len(rows)
        self.counts.rows_out += len(out)
        return out, at

    def _fire(self, out: list[Any], at: list[Position], *, sets_timers: bool = True) -> None:
        position, key, row = heappop(self._timers)  # `row` is the payload; errors show it as the record
        entry = self._entries[key]
        entry.waiting -= 1
        if entry.state is _NOTHING:
            entry.state = self._operator.initial(key)
        context = self._context
        context.position = position
        self._operator.on_timer(key, row, entry.state, context)
        for number, value in enumerate(context._rows):  # noqa: SLF001  the context is this module's own
            out.append(value)
            at.append((*position, number))
        context._rows = []  # noqa: SLF001  as above
        if not sets_timers:
            context._timers = []  # noqa: SLF001  as above
        self._settle(key, entry, position[:-1])

    def _settle(self, key: Any, entry: _Entry, root: Position) -> None:
        """Set the timers that were asked for, forget the key if that was asked for."""
        context = self._context
        if context._timers:  # noqa: SLF001  the context is this module's own
            for time_ms, payload in context._timers:  # noqa: SLF001  as above
                heappush(self._timers, ((time_ms, 0, *root[2:], entry.number), key, payload))
                entry.number += 1
                entry.waiting += 1
            context._timers = []  # noqa: SLF001  as above
        if context._forgets:  # noqa: SLF001  as above
            context._forgets = False  # noqa: SLF001  as above
            entry.state = _NOTHING
        if entry.state is _NOTHING and not entry.waiting:
            del self._entries[key]

    @property
    def state_keys(self) -> int:
        return len(self._entries)

    def snapshot(self) -> Any:
        entries = [
            (
                key,
                entry.state is not _NOTHING,
                None if entry.state is _NOTHING else entry.state,
                entry.number,
                entry.waiting,
            )
            for key, entry in self._entries.items()
        ]
        return entries, sorted(self._timers, key=_first)

    def restore(self, plain: Any) -> None:
        entries, timers = plain
        self._entries = {}
        for key, has_state, state, number, waiting in entries:
            entry = self._entries[key] = _Entry()
            entry.state = state if has_state else _NOTHING
            entry.number, entry.waiting = number, waiting
        self._timers = list(timers)
        heapify(self._timers)


def _first(timer: tuple[Position, Any, Any]) -> Position:
    return timer[0]
