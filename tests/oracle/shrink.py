"""Finds a small part of a stream that still fails: a debugging aid, not part of a test run."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(lines: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A subsequence that fails and of which no single line can be left out (delta debugging, complements only).

    Raises:
        ValueError: the whole does not fail.
    """
    left = list(lines)
    if not fails(left):
        raise ValueError("the stream does not fail")
    size = len(left)
    while size:
        start = 0
        while start < len(left):
            without = left[:start] + left[start + size :]
            if fails(without):
                left = without
            else:
                start += size
        size //= 2
    return left
