"""What a window computes from its rows. Sums of floats are exact, so the order of arrival cannot show in them."""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable
from math import inf, nan
from typing import Any, Generic, TypeVar

R = TypeVar("R")
S = TypeVar("S")
V = TypeVar("V")

_SCALE_BITS = 1074
"""Every finite double is a whole multiple of 2^-1074."""


class Aggregator(ABC, Generic[R, S, V]):
    """A custom aggregate: rows of type R, a state of type S (plain data), a value of type V.

    The type of the value is taken from the annotation of `result`. Without `remove` a sliding window adds up its rows
    again at each change, which costs time in proportion to their number.

    Set `commutative = True` in a class whose value does not depend on the order of its rows: then rows need no positions
    on their way to a tumbling or hopping window, which is faster.
    """

    commutative: bool = False

    @abstractmethod
    def create(self) -> S:
        """The state of a window without rows."""

    @abstractmethod
    def add(self, state: S, row: R) -> S:
        """The state with one row more; may change and return the one given."""

    @abstractmethod
    def result(self, state: S) -> V:
        """The value of the window; must not change the state."""

    def remove(self, state: S, row: R) -> S:
        """The state without a row that was added before."""
        raise NotImplementedError

    @property
    def can_remove(self) -> bool:
        """True when the class has a `remove` of its own."""
        return type(self).remove is not Aggregator.remove

    def to_plain(self, state: S) -> Any:
        """The state as plain data for a snapshot; only a state that is no plain data needs its own."""
        return state

    def from_plain(self, plain: Any) -> S:
        """The state that `to_plain` described."""
        state: S = plain
        return state


class Count(Aggregator[Any, int, int]):
    """How many rows."""

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
    """A finite number as a whole multiple of 2^-1074. Raises ValueError or OverflowError for NaN and infinity."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_SCALE_BITS + 1 - denominator.bit_length())


_FINITE = (0, 0, 0)
"""How many numbers are NaN, infinite above zero and infinite below, where all are finite."""


def _kinds(before: tuple[int, int, int], number: float, by: int) -> tuple[int, int, int]:
    """The counts of `_FINITE` with one such number more (by 1) or less (by -1)."""
    nans, above, below = before
    if number != number:
        return nans + by, above, below
    return (nans, above + by, below) if number > 0 else (nans, above, below + by)


def _rounded(scaled: int, kinds: tuple[int, int, int]) -> float:
    """The double nearest to scaled / 2^1074, which may be an infinity, unless numbers that are not finite decide alone."""
    nans, above, below = kinds
    if nans or (above and below):
        return nan
    if above or below:
        return inf if above else -inf
    try:
        return scaled / (1 << _SCALE_BITS)
    except OverflowError:
        return inf if scaled > 0 else -inf


class _ExactState(Aggregator[R, list[Any], V], Generic[R, V]):
    """A state [exact sum of the finite numbers in 2^-1074, count, how many are not finite].

    The sum is too long for an integer of MessagePack and is kept as text. Infinities and NaN are counted, so that they can leave.
    """

    commutative = True

    def __init__(self, value_of: Callable[[R], Any], kind: type = object) -> None:
        self.value_of: Callable[[R], Any] = value_of
        self._kind = kind  # of the numbers that are counted

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
    """Mean of a number of each row: the sum, exact and rounded once, by the number of rows. The state counts rows."""

    def result(self, state: list[Any]) -> float:
        mean: float = _rounded(state[0], state[2]) / state[1]
        return mean


class Extreme(Aggregator[R, list[Any], V], Generic[R, V]):
    """Least (or greatest) value, NaN if one is NaN. The state holds it alone; before the first row it is empty."""

    commutative = True

    def __init__(self, value_of: Callable[[R], V], place: int) -> None:
        self.value_of: Callable[[R], Any] = value_of
        self.place = place
        """In ordered values: 0 the least, -1 the greatest."""

    def create(self) -> list[Any]:
        return []

    def add(self, state: list[Any], row: R) -> list[Any]:
        value = self.value_of(row)
        if _is_nan(value) or not state:
            return [value]
        found = state[self.place]  # the only one, but in snapshots of old, which held all values in order
        return [value if (found < value if self.place else value < found) else found]

    def result(self, state: list[Any]) -> V:
        found: Any = state[self.place]
        if type(found) is float:
            found = found + 0.0  # a zero has no sign
        value: V = found
        return value


def _is_nan(value: Any) -> bool:
    """Raises TypeError for what has no order, like None: alone in a window, it would be compared with nothing."""
    return bool(value < value or value != value)


class RemovableExtreme(Extreme[R, V], Generic[R, V]):
    """An `Extreme` from which rows are taken out again: the state holds all values in order.

    NaN, which has no place in an order, stands before the least or behind the greatest, where the result is found.
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
        """Between which places the values stand that are not NaN."""
        if self.place:
            return 0, bisect_left(state, 1, key=_is_nan)
        return bisect_left(state, 0, key=lambda value: -_is_nan(value)), len(state)


class CompositeAggregator(Aggregator[R, list[Any], tuple[Any, ...]], Generic[R]):
    """Several aggregates of the same rows; the value is the tuple of theirs."""

    def __init__(self, parts: tuple[Aggregator[R, Any, Any], ...]) -> None:
        self.parts = parts
        self.commutative = all(part.commutative for part in parts)

    def create(self) -> list[Any]:
        return [part.create() for part in self.parts]

    def add(self, state: list[Any], row: R) -> list[Any]:
        added: list[Any] = []
        try:
            for part, one in zip(self.parts, state, strict=True):
                added.append(part.add(one, row))  # one by one: what was added must be known if the next part raises
        except Exception:
            for part, one in zip(self.parts, added, strict=False):
                if part.can_remove:  # it may have changed its state in place
                    part.remove(one, row)
            raise
        return added

    def remove(self, state: list[Any], row: R) -> list[Any]:
        return [part.remove(one, row) for part, one in zip(self.parts, state, strict=True)]

    def result(self, state: list[Any]) -> tuple[Any, ...]:
        results = tuple(part.result(one) for part, one in zip(self.parts, state, strict=True))
        value: tuple[Any, ...] = self.built(results)
        return value

    def built(self, results: tuple[Any, ...]) -> Any:
        """The value that the parts' results make: here the tuple itself."""
        return results

    def to_plain(self, state: list[Any]) -> Any:
        return [part.to_plain(one) for part, one in zip(self.parts, state, strict=True)]

    def from_plain(self, plain: Any) -> list[Any]:
        return [part.from_plain(one) for part, one in zip(self.parts, plain, strict=True)]

    @property
    def can_remove(self) -> bool:
        return all(part.can_remove for part in self.parts)


def with_remove(aggregator: Aggregator[Any, Any, Any]) -> Aggregator[Any, Any, Any]:
    """The same aggregate, made so that it can remove rows, if there is a way; else as it is."""
    if type(aggregator) is Extreme:
        return RemovableExtreme(aggregator.value_of, aggregator.place)
    if type(aggregator) is CompositeAggregator:
        made = CompositeAggregator(tuple(with_remove(part) for part in aggregator.parts))
        return made if made.can_remove else aggregator
    return aggregator
