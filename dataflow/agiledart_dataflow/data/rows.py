"""Rows that built-in steps put out. They are NamedTuples: they travel, compare and print like any row of the user's."""

from datetime import UTC, datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

K = TypeVar("K")
V = TypeVar("V")
L = TypeVar("L")
R = TypeVar("R")


class Change(NamedTuple, Generic[K, V, R]):
    """Change of the value of a key.

    Attributes:
        key: the key.
        value: the new value; None when the key is gone (its window is empty).
        cause: the row that made the change; None when time did (a row left the window).
    """

    key: K
    value: V | None
    cause: R | None


class Entry(NamedTuple, Generic[K, V]):
    """One place of a ranking."""

    key: K
    value: V


class Ranking(NamedTuple, Generic[R, K, V]):
    """The best keys, best first.

    Attributes:
        cause: the row that changed the ranking.
        entries: at most n.
    """

    cause: R
    entries: list[Entry[K, V]]


class Pane(NamedTuple, Generic[K, V]):
    """The result of one closed window of one key.

    Attributes:
        key: key of the rows.
        start_ms, end_ms: the window [start, end) in event time.
        value: the result of the aggregate.
    """

    key: K
    start_ms: int
    end_ms: int
    value: V

    @property
    def start(self) -> datetime:
        """The start, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.start_ms)

    @property
    def end(self) -> datetime:
        """The end, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.end_ms)


class Joined(NamedTuple, Generic[K, L, R]):
    """Two rows of one key that belong together.

    Attributes:
        key: of both.
        left, right: the rows; None where a join passes a row without a partner.
    """

    key: K
    left: L
    right: R


class Either(NamedTuple, Generic[L, R]):
    """A row of one of two streams.

    Attributes:
        left, right: the row at its side; None at the other.
    """

    left: L | None
    right: R | None


class Match(NamedTuple, Generic[K, R]):
    """Rows of one key that make up a pattern, in order."""

    key: K
    rows: list[R]


class DeadLetter(NamedTuple, Generic[R]):
    """A row for which a step with the error policy `dead_letter` raised, or a record that a source could not read.

    Attributes:
        record: the row; at a join of rows of two types `Either(left, right)`.
        step: the step that raised, or the source.
        error: type and text of the exception; of a malformed record its place and the error in it.
        traceback: the lines of user code that led to it.
    """

    record: R
    step: str
    error: str
    traceback: str
