"""Reads a source as an executor does: waits for its descriptor, reads, until something is so."""

import select
import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0
"""For what a test waits for, on a machine that is busy."""


class Taken:
    """Rows read from a reader."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.rows: list[Any] = []
        self.notes: list[str] = []
        self.malformed: dict[str, int] = {}
        self.exhausted = False

    def until(self, is_so: Callable[["Taken"], bool], seconds: float = SECONDS) -> "Taken":
        """Read until it is so."""
        deadline = time.monotonic() + seconds
        while not is_so(self):
            assert time.monotonic() < deadline, f"not in time: {self.rows[:3]} {self.notes[:5]} {self.malformed}"
            assert not self.exhausted, f"it has ended: {self.rows[:3]} {self.notes[:5]}"
            self._read()
        return self

    def _read(self) -> None:
        reading = self.reader.read(100, 0)
        self.rows += reading.rows
        self.notes += reading.notes
        for reason, count in reading.malformed.items():
            self.malformed[reason] = self.malformed.get(reason, 0) + count
        self.exhausted = reading.exhausted
        if reading.drained and not reading.exhausted:
            number = self.reader.fileno()
            select.select([] if number is None else [number], [], [], 0.05)


def taken(reader: Any) -> Taken:
    """All of a reader that ends; it is closed."""
    found = Taken(reader)
    deadline = time.monotonic() + SECONDS
    try:
        while not found.exhausted:
            assert time.monotonic() < deadline, f"it does not end: {found.rows[:3]} {found.notes[:5]}"
            found._read()
    finally:
        reader.close()
    return found


def until(is_so: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.005)
