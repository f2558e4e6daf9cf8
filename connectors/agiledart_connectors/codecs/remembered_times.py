"""`RememberedTimes`: texts of times → datetimes, remembered, since event times repeat."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

_REMEMBERED: Final = 1 << 13


class RememberedTimes(dict[str, datetime]):
    """Text → datetime: equal texts give the very same object.

    Those that repeat lie close together: two hours of them, second by second, take a megabyte. (Eighteen took ten, and came and
    went every two minutes in a replay at 600 times real time, among rows that stayed: memory that no one could give back.)

    Args:
        read: makes a time of a text; its errors are raised.
    """

    def __init__(self, read: Callable[[str], datetime]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, text: str) -> datetime:
        if len(self) >= _REMEMBERED:
            self.clear()
        value = self[text] = self._read(text)
        return value
