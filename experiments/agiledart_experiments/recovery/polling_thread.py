"""What is looked at again and again by a thread of its own, from entering to leaving."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class PollingThread(ABC):
    """A context manager that looks while it is entered.

    Args:
        seconds: between two looks.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """One look."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._left.wait(self._seconds):
            self.look()
