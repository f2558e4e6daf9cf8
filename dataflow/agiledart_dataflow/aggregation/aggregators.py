"""Aggregators: the values that a window computes from its rows. Sums of floats are exact, so they do not depend on row order."""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable
from math import inf, nan
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

R = TypeVar("R")
S = TypeVar("S")
V = TypeVar("V")

_SCALE_BITS = 1074
"""Every finite double is a whole multiple of 2^-1074."""


class Aggregator(ABC, Generic[R, S, V]):
    """Custom aggregate: rows of type R, a state of type S (plain data), a value of type V.

    The type of the value is taken from the annotation of `result`. Without `remove` a sliding window adds up its rows
    again at each change, which costs time in proportion to their number.

    Set `commutative = True` in a class whose value does not depend on the order of its rows. Rows then need no
    positions on their way to a tumbling or hopping window, which is faster.
    """

    commutative: bool = False

    @abstractmethod
    def create(self) -> S:
        """Return the state of a window without rows."""

    @abstractmethod
    def add(self, state: S, row: R) -> S:
        """Return the state with one row more; it may be the given state, changed."""

    @abstractmethod
    def result(self, state: S) -> V:
        """Return the value of the window; must not change the state."""

    def remove(self, state: S, row: R) -> S:
        """Return the state without a row that was added before."""
        raise NotImplementedError

    @property
    def can_remove(self) -> bool:
        """Report whether the class has a `remove` of its own."""
        return type(self).remove is not Aggregator.remove

    def to_plain(self, state: S) -> Any:
        """Return the state as plain data for a snapshot; override it only when the state is not plain data."""
        return state

    def from_plain(self, plain: Any) -> S:
        """Return the state that `to_plain` described."""
        state: S = plain
        return state


class Count(Aggregator[Any, int, int]):
    """Number of rows."""

    commutative = True

    def create(self) -> int:
        return 0

    def add(self, state: int, row: Any) -> int:
        return state + 1

    def remove(self, state: int, row: Any) -> int:
        return state - 1

    def result(self, state: int) -> int:
        return state


def exact(value: float) -> int:
    """Return a finite number as a whole multiple of 2^-1074. Raises ValueError or OverflowError for NaN and infinity."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_SCALE_BITS + 1 - denominator.bit_length())


_FINITE = (0, 0, 0)
"""Numbers of NaNs, positive and negative infinities, where all values are finite."""


def _kinds(before: tuple[int, int, int], number: float, by: int) -> tuple[int, int, int]:
    """Return the counts of `_FINITE` with one such number more (by 1) or less (by -1)."""
    nans, above, below = before
    if number != number:
        return nans + by, above, below
    return (nans, above + by, below) if number > 0 else (nans, above, below + by)


def _rounded(scaled: int, kinds: tuple[int, int, int]) -> float:
    """Return the double nearest to scaled / 2^1074 (it may be an infinity); values that are not finite decide alone."""
    nans, above, below = kinds
    if nans or (above and below):
        return nan
    if above or below:
        return inf if above else -inf
    try:
        return scaled / (1 << _SCALE_BITS)
    except OverflowError:
        return inf if scaled > 0 else -inf


@runtime_checkable
class ReadsValue(Protocol):
    """Aggregate of one value of each row.

    Attributes:
        value_of: the row's value.
    """

    value_of: Callable[[Any], Any]


class _ExactState(Aggregator[R, list[Any], V], Generic[R, V]):
    """Aggregate with a state [exact sum of the finite numbers in 2^-1074, count, counts of values that are not finite].

    The sum is too long for an integer of MessagePack and is saved as text. Infinities and NaN are counted, so that
    `remove` works for them.
    """

    commutative = True

    def __init__(self, value_of: Callable[[R], Any], kind: type = object) -> None:
        self.value_of: Callable[[R], Any] = value_of
        self._kind = kind  # type of the numbers that are counted

    def create(self) -> list[Any]:
        return [0, 0, _FINITE]

    def add(self, state: list[Any], row: R) -> list[Any]:
        number = self.value_of(row)
        count = state[1] + isinstance(number, self._kind)
        try:
            return [state[0] + exact(number), count, state[2]]
        except (OverflowError, ValueError):
            return [state[0], count, _kinds(state[2], number, 1)]

    def remove(self, state: list[Any], row: R) -> list[Any]:
        number = self.value_of(row)
        count = state[1] - isinstance(number, self._kind)
        try:
            return [state[0] - exact(number), count, state[2]]
        except (OverflowError, ValueError):
            return [state[0], count, _kinds(state[2], number, -1)]

    def to_plain(self, state: list[Any]) -> Any:
        return [hex(state[0]), state[1], *(state[2] if any(state[2]) else ())]

    def from_plain(self, plain: Any) -> list[Any]:
        return [int(plain[0], 16), plain[1], tuple(plain[2:]) or _FINITE]


class Sum(_ExactState[R, Any], Generic[R]):
    """Sum of a number of each row: exact, rounded once at the end; a sum of ints is an int. The state counts floats."""

    def __init__(self, value_of: Callable[[R], Any]) -> None:
        super().__init__(value_of, float)

    def result(self, state: list[Any]) -> Any:
        return _rounded(state[0], state[2]) if state[1] else state[0] >> _SCALE_BITS


class Mean(_ExactState[R, float], Generic[R]):
    """Mean of a number of each row: the exact sum, rounded once, divided by the number of rows. The state counts rows."""

    def result(self, state: list[Any]) -> float:
        mean: float = _rounded(state[0], state[2]) / state[1]
        return mean


class Extreme(Aggregator[R, list[Any], V], Generic[R, V]):
    """Least (or greatest) value, NaN if a value is NaN. The state holds that value alone; before the first row it is empty."""

    commutative = True

    def __init__(self, value_of: Callable[[R], V], place: int) -> None:
        self.value_of: Callable[[R], Any] = value_of
        self.place = place
        """Index in ordered values: 0 the least, -1 the greatest."""

    def create(self) -> list[Any]:
        return []

    def add(self, state: list[Any], row: R) -> list[Any]:
        value = self.value_of(row)
        if _is_nan(value) or not state:
            return [value]
        extreme_value = state[self.place]  # the only value, except in old snapshots, which held all values in order
        return [value if (extreme_value < value if self.place else value < extreme_value) else extreme_value]

    def result(self, state: list[Any]) -> V:
        extreme_value: Any = state[self.place]
        if type(extreme_value) is float:
            extreme_value = extreme_value + 0.0  # a zero has no sign
        value: V = extreme_value
        return value


def _is_nan(value: Any) -> bool:
    """Report whether a value is NaN. Raises TypeError for a value without an order, like None, even when it stands alone."""
    return bool(value < value or value != value)


class RemovableExtreme(Extreme[R, V], Generic[R, V]):
    """An `Extreme` that can remove rows: the state holds all values in order.

    NaN has no place in an order. It stands before the least or after the greatest value, where the result is read.
    """

    def add(self, state: list[Any], row: R) -> list[Any]:
        value = self.value_of(row)
        if value < value or value != value:  # `_is_nan`, without the calls that each row would pay for here
            state.insert(len(state) if self.place else 0, value)
        elif state and state[self.place] != state[self.place]:
            insort(state, value, *self._in_order(state))
        else:
            insort(state, value)
        return state

    def remove(self, state: list[Any], row: R) -> list[Any]:
        value = self.value_of(row)
        if value != value:
            del state[self.place]
        elif state[self.place] != state[self.place]:
            del state[bisect_left(state, value, *self._in_order(state))]
        else:
            del state[bisect_left(state, value)]
        return state

    def _in_order(self, state: list[Any]) -> tuple[int, int]:
        """Return the limits of the indices whose values are not NaN."""
        if self.place:
            return 0, bisect_left(state, 1, key=_is_nan)
        return bisect_left(state, 0, key=lambda value: -_is_nan(value)), len(state)


class CompositeAggregator(Aggregator[R, list[Any], tuple[Any, ...]], Generic[R]):
    """Several aggregates of the same rows; its value is the tuple of their values."""

    def __init__(self, parts: tuple[Aggregator[R, Any, Any], ...]) -> None:
        self.parts = parts
        self.commutative = all(part.commutative for part in parts)

    def create(self) -> list[Any]:
        return [part.create() for part in self.parts]

    def add(self, state: list[Any], row: R) -> list[Any]:
        added: list[Any] = []
        try:
            for part, part_state in zip(self.parts, state, strict=True):
                # the states already added must be known if the next part raises
                added.append(part.add(part_state, row))
        except Exception:
            for part, part_state in zip(self.parts, added, strict=False):
                if part.can_remove:  # it may have changed its state in place
                    part.remove(part_state, row)
            raise
        return added

    def remove(self, state: list[Any], row: R) -> list[Any]:
        return [part.remove(part_state, row) for part, part_state in zip(self.parts, state, strict=True)]

    def result(self, state: list[Any]) -> tuple[Any, ...]:
        results = tuple(part.result(part_state) for part, part_state in zip(self.parts, state, strict=True))
        value: tuple[Any, ...] = self.built(results)
        return value

    def built(self, results: tuple[Any, ...]) -> Any:
        """Return the value made of the parts' results: here the tuple itself."""
        return results

    def to_plain(self, state: list[Any]) -> Any:
        return [part.to_plain(part_state) for part, part_state in zip(self.parts, state, strict=True)]

    def from_plain(self, plain: Any) -> list[Any]:
        return [part.from_plain(part_state) for part, part_state in zip(self.parts, plain, strict=True)]

    @property
    def can_remove(self) -> bool:
        return all(part.can_remove for part in self.parts)


def with_remove(aggregator: Aggregator[Any, Any, Any]) -> Aggregator[Any, Any, Any]:
    """Return the same aggregate in a form that can remove rows, if it has one; else the aggregate itself."""
    if type(aggregator) is Extreme:
        return RemovableExtreme(aggregator.value_of, aggregator.place)
    if type(aggregator) is CompositeAggregator:
        made = CompositeAggregator(tuple(with_remove(part) for part in aggregator.parts))
        return made if made.can_remove else aggregator
    return aggregator
