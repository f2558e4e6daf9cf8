"""Rows that built-in steps put out. They are NamedTuples: they travel, compare and print like any row of the user's."""

from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K")
V = TypeVar("V")
L = TypeVar("L")
R = TypeVar("R")


class Change(NamedTuple, Generic[K, V, R]):
    """The value of a key is another one now.

    Attributes:
        key: whose value.
        value: the new value; None when the key is gone (its window is empty).
        cause: the row that made the change, None when time did (a row left the window).
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
        cause: the row at which the ranking was found changed.
        entries: at most n.
    """

    cause: R
    entries: list[Entry[K, V]]


class Pane(NamedTuple, Generic[K, V]):
    """The result of one closed window of one key.

    Attributes:
        key: whose rows.
        start_ms, end_ms: the window [start, end) in event time.
        value: what the aggregate made of them.
    """

    key: K
    start_ms: int
    end_ms: int
    value: V


class Joined(NamedTuple, Generic[K, L, R]):
    """Two rows of one key that belong together.

    Attributes:
        key: of both.
        left, right: the rows; None where a join lets a row pass that found no partner.
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
    """A row that a step could not treat and whose error policy is `dead_letter`, or a record that a source could not read.

    Attributes:
        record: the row; at a join of rows of two types `Either(left, right)`.
        step: that raised, or the source.
        error: type and text of the exception; of a malformed record its place and what is wrong with it.
        traceback: the lines of user code that led to it.
    """

    record: R
    step: str
    error: str
    traceback: str
