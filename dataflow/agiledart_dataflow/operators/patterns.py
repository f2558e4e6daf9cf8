"""Patterns: rows of one key that follow each other within a time, and rows that must not come between or after them.

Each row that the first element accepts begins a match. The next element takes the first later row that it accepts; rows
in between do not matter. Matches may overlap and share rows. A match that ends with a forbidden row is complete when
its time is over.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from agiledart_dataflow.data.rows import Match
from agiledart_dataflow.operators.keyed import Context, KeyedOperator

R = TypeVar("R")

MAX_UNFINISHED = 10_000
"""Unfinished matches allowed for one key; a pattern that begins at every row of a busy key is a mistake."""


@dataclass(frozen=True)
class Never(Generic[R]):
    """Row that must not come at this place of a pattern."""

    predicate: Callable[[R], object]


def never(predicate: Callable[[R], object]) -> Never[R]:
    """Forbid rows for which the predicate is true at this place of a pattern.

    Between two elements: not before the next one; at the end: not until the pattern's time is over.
    """
    return Never(predicate)


State = list[list[Any]]
"""Unfinished matches, oldest first: [position of the first row, the rows so far]."""


class Pattern(KeyedOperator[Any, Any, State, Match[Any, Any]]):
    """Operator that finds all matches.

    Args:
        elements: predicates and `Never`s; begins with a predicate.
        within_ms: the last row comes at most this long after the first.
    """

    keeps_state_after_error = False

    def __init__(self, elements: Sequence[Callable[[Any], object] | Never[Any]], within_ms: int) -> None:
        self._wanted: list[Callable[[Any], object]] = []
        self._unwanted: list[list[Callable[[Any], object]]] = [[]]
        for element in elements:
            if isinstance(element, Never):
                self._unwanted[-1].append(element.predicate)
            else:
                self._wanted.append(element)
                self._unwanted.append([])
        self._waits = bool(self._unwanted[-1])
        self._within_ms = within_ms

    def initial(self, key: Any) -> State:
        return []

    def on_record(self, key: Any, record: Any, state: State, context: Context[Match[Any, Any]]) -> None:
        unfinished: State = []  # a new list: a predicate may raise, and then nothing has changed
        for match in state:
            start, rows = match
            if any(predicate(record) for predicate in self._unwanted[len(rows)]):
                continue
            if len(rows) < len(self._wanted) and self._wanted[len(rows)](record):
                rows = [*rows, record]
                if len(rows) == len(self._wanted) and not self._waits:
                    context.emit(Match(key, rows))
                    continue
                match = [start, rows]
            unfinished.append(match)
        if self._wanted[0](record):
            if len(unfinished) >= MAX_UNFINISHED:
                raise ValueError(
                    f"more than {MAX_UNFINISHED:,} matches of one key are under way: let the pattern begin at fewer rows, or"
                    " shorten its time"
                )
            start = list(context.position)
            unfinished.append([start, [record]])
            context.timer_at(context.time_ms + self._within_ms + 1, start)
        state[:] = unfinished
        if not unfinished:
            context.forget()  # as if the key were new; timers of matches that are complete find nothing to do

    def on_timer(self, key: Any, payload: Any, state: State, context: Context[Match[Any, Any]]) -> None:
        # Each match has its own timer, so that matches of one time come out in the order of their first rows.
        for number, (start, rows) in enumerate(state):
            if start == payload:
                del state[number]
                if self._waits and len(rows) == len(self._wanted):
                    context.emit(Match(key, rows))
                break
        if not state:
            context.forget()

    def from_plain(self, plain: Any) -> State:
        return [[*match] for match in plain]
