"""Base class of context managers that poll in a thread of their own."""

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class PollingThread(ABC):
    """Context manager whose thread calls `look` repeatedly between entry and exit.

    Args:
        seconds: seconds between two calls.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Poll once."""

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
