"""User interface of a step with state by key: `KeyedOperator`, and the `Context` that its methods get.

`keyed_step.py` runs it. The built-in steps with state by key (sessions, joins, patterns …) are operators of this kind.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from agiledart_dataflow.data.position import CAUSE_LENGTH, RECORD, Position
from agiledart_kernel.instants import event_time

K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
O = TypeVar("O")  # noqa: E741  the output's type, beside K, R and S

MAX_TIMER_NAME = 64


class Context(Generic[O]):
    """Actions that an operator may take while it treats one record or timer; the context is invalid afterwards.

    Attributes:
        position: of the record or timer; of two positions, the greater one is the newer information.
        at_end: True while timers fire because the input has ended: they fire before their time, and new ones cannot be
            set.
        shared: for a `BroadcastOperator`: the value built from the broadcast rows so far.
    """

    __slots__ = (
        "_cancels",
        "_forgets",
        "_has_lateness",
        "_no_result",
        "_rows",
        "_side",
        "_timers",
        "at_end",
        "position",
        "shared",
    )

    def __init__(
        self, *, has_lateness: bool = False, no_result: Callable[[Exception, Position], None] | None = None
    ) -> None:
        self.position: Position = ()
        self.at_end = False
        self.shared: Any = None
        self._has_lateness = has_lateness
        # the error policy's handler of a result that raised; without it the error goes to the caller
        self._no_result = no_result
        self._rows: list[O] = []
        self._side: list[tuple[str, Any]] = []
        self._timers: list[tuple[int, Any, str]] = []
        self._cancels: list[str] = []
        self._forgets = False

    @property
    def time_ms(self) -> int:
        """Return the event time of the record or timer, in ms. An accepted late row has the time of its arrival."""
        return self.position[0]

    @property
    def event_time_ms(self) -> int:
        """Return the event time; for an accepted late row (`allowed_lateness`) the time at which it happened."""
        position = self.position
        late = self._has_lateness and position[1] == RECORD
        return position[0] - position[CAUSE_LENGTH] if late else position[0]

    @property
    def branch(self) -> int:
        """Return the number of the input from which the record came, 0 for the first."""
        return self.position[-1]

    def emit(self, row: O) -> None:
        """Put out a row."""
        self._rows.append(row)

    def emit_result(self, make: Callable[..., O], *given: Any) -> None:
        """Put out `make(*given)`. When it raises, an error policy counts the result as `failed` and blames no record."""
        try:
            self._rows.append(make(*given))
        except Exception as error:
            if self._no_result is None:
                raise
            self._no_result(error, self.position)

    def emit_to(self, tag: str, row: Any) -> None:
        """Put out a row at a side output. The row is lost unless a `.side(name, tag, rows=Type)` after the step reads it."""
        self._side.append((tag, row))

    def timer_at(self, time: int | datetime, payload: Any = None, *, name: str = "") -> None:
        """Ask for `on_timer(key, payload, …)` at an event time after the present one.

        The payload is plain data (numbers, texts, lists). At END_OF_INPUT all timers that are set still fire. A key has
        one timer of each `name`: setting it again moves it.

        Raises:
            ValueError: the time is not after the present.
        """
        time_ms = event_time(time)
        if time_ms <= self.position[0]:
            raise ValueError(f"a timer at {time_ms} ms is not after the present, {self.position[0]} ms")
        if len(name) > MAX_TIMER_NAME:
            raise ValueError(f"the name of a timer has at most {MAX_TIMER_NAME} characters: {name[:MAX_TIMER_NAME]}…")
        self._timers.append((time_ms, payload, name))

    def cancel_timer(self, name: str) -> None:
        """Cancel the key's timer of this name; do nothing when there is none."""
        self._timers = [timer for timer in self._timers if timer[2] != name]
        self._cancels.append(name)

    def forget(self) -> None:
        """Drop the key's state and its named timers after this call; the key's next record finds a new state.

        Timers without a name still fire, with a new state.
        """
        self._forgets = True


class KeyedOperator(ABC, Generic[K, R, S, O]):
    """Custom stateful step: keys K, records R, state S of one key, output rows O.

    Write the four types when you subclass, `class Taxis(KeyedOperator[str, Ride, TaxiState, AreaNews])`. Rows and state
    cross processes, so their types must be known. The state is a dataclass or other plain data that the methods change
    in place. A field that you add later needs a default, so that state saved earlier can still be read.

    Attributes:
        keeps_state_after_error: a key whose first record raised keeps the state that `on_record` left. The built-in
            operators change nothing before their last call that can raise, and set this to False.
    """

    keeps_state_after_error: ClassVar[bool] = True

    @abstractmethod
    def initial(self, key: K) -> S:
        """Return the state of a key that is new or was forgotten."""

    @abstractmethod
    def on_record(self, key: K, record: R, state: S, context: Context[O]) -> None:
        """Treat a record; the records of a key come in order of position."""

    def on_timer(self, key: K, payload: Any, state: S, context: Context[O]) -> None:
        """Treat a timer that was set with `context.timer_at`; it fires before records of the same time."""
        raise NotImplementedError(f"{type(self).__name__} sets timers and has no on_timer")

    def to_plain(self, state: S) -> Any:
        """Return the state as plain data for a snapshot; override it only when the state is not plain data."""
        return state

    def from_plain(self, plain: Any) -> S:
        """Return the state that `to_plain` described."""
        state: S = plain
        return state


B = TypeVar("B")
G = TypeVar("G")


class BroadcastOperator(KeyedOperator[K, R, S, O], Generic[K, R, S, O, B, G]):
    """Keyed step that also receives a small stream of rows B, in full, at every instance.

    It builds one value G from them, `context.shared` in `on_record` and `on_timer`. These two must not change it, or
    the instances would no longer agree. Records and broadcast rows come in order of position, so the result does not
    depend on which stream was faster.
    """

    @abstractmethod
    def initial_shared(self) -> G:
        """Return the shared value before the first row of the broadcast stream."""

    @abstractmethod
    def on_broadcast(self, record: B, shared: G) -> None:
        """Take a row of the broadcast stream by changing `shared` in place; put out nothing."""
