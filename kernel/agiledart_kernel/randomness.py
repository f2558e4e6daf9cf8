"""Seeded streams of random numbers, one per (seed, node, purpose).

It draws only from `Random.random()`, the one sequence that Python promises to keep across versions. Everything else is
built from it here.
"""

import random
from collections.abc import MutableSequence, Sequence
from hashlib import sha256
from typing import TypeVar

T = TypeVar("T")


class RandomStream:
    """Random numbers for one purpose of one node. The same arguments give the same numbers."""

    __slots__ = ("_draw",)

    def __init__(self, seed: int, *purpose: object) -> None:
        digest = sha256(repr((seed, *purpose)).encode()).digest()
        self._draw = random.Random(int.from_bytes(digest[:16], "big")).random

    def uniform(self) -> float:
        """Return a float in [0, 1)."""
        return self._draw()

    def between(self, low: float, high: float) -> float:
        """Return a float in [low, high)."""
        return low + (high - low) * self._draw()

    def index(self, count: int) -> int:
        """Return an int in 0 … count-1."""
        return int(self._draw() * count)

    def choice(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[int(self._draw() * len(items))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Put the items into random order, in place (Fisher and Yates)."""
        for i in range(len(items) - 1, 0, -1):
            j = int(self._draw() * (i + 1))
            items[i], items[j] = items[j], items[i]

    def bits(self, count: int) -> int:
        """Return a non-negative int of `count` random bits."""
        value = 0
        for _ in range(0, count, 32):
            value = value << 32 | int(self._draw() * 4294967296.0)
        return value >> (-count % 32)
