"""`MessageQueue`: messages on their way from the thread that fetches them to the instance that reads them; bounded."""

import contextlib
import os
import threading
from collections import deque
from typing import Any, Final

from agiledart_connectors.kafka.partitions import TopicOffsets
from agiledart_connectors.remote.connection_health import ConnectionHealth
from agiledart_kernel.errors import AgileDartError

MAX_WAITING: Final = 8_192
MAX_WAITING_BYTES: Final = 16 << 20
MAX_AT_ONCE: Final = 2_000
"""Messages that are fetched in one go."""


class MessageQueue:
    """Queue of messages: one thread puts, another one takes.

    Attributes:
        health: status of the connection to the brokers, set by the thread.
    """

    def __init__(self, broker: str) -> None:
        self.health = ConnectionHealth(f"connected to {broker}")
        self._changed = threading.Lock()
        self._pieces: deque[list[Any]] = deque()
        self._count = self._bytes = 0
        self._begun: TopicOffsets | None = None
        self._failure: AgileDartError | None = None
        self._is_over = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    # ---- for the thread

    @property
    def is_full(self) -> bool:
        """Return whether the thread has to wait."""
        return self._count >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES

    def put(self, messages: list[Any]) -> None:
        """They have come."""
        with self._changed:
            self._pieces.append(messages)
            self._count += len(messages)
            self._bytes += sum(_size(message) for message in messages)
            self._wake_reader()

    def set_start(self, topic_offsets: TopicOffsets) -> None:
        """Report where reading began, before anything is put."""
        with self._changed:
            self._begun = topic_offsets
            self._wake_reader()

    def end(self, failure: AgileDartError | None) -> None:
        """Nothing follows."""
        with self._changed:
            self._failure, self._is_over = failure, failure is None
            self._wake_reader()

    def note(self, text: str) -> None:
        """Something that users should know."""
        self.health.note(text)
        self.wake_reader()

    def wake_reader(self) -> None:
        """Wake the reader."""
        with self._changed:
            self._wake_reader()

    # ---- for the reader

    def take_start(self) -> TopicOffsets | None:
        """Return where reading began, once."""
        with self._changed:
            set_start, self._begun = self._begun, None
            return set_start

    def take(self, most: int) -> tuple[list[Any], bool]:
        """Return the messages that have come, and whether none follows. Raises the thread's error once all before it were taken."""
        with self._changed:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            taken: list[Any] = []
            while self._pieces and len(taken) < most:
                piece = self._pieces[0]
                if len(piece) <= most - len(taken):
                    taken += self._pieces.popleft()
                else:
                    cut = most - len(taken)
                    taken += piece[:cut]
                    self._pieces[0] = piece[cut:]
            self._count -= len(taken)
            self._bytes -= sum(_size(message) for message in taken)
            if not taken and self._failure is not None:
                raise self._failure
            if self._pieces or self._failure is not None:
                self._wake_reader()
            return taken, self._is_over and not self._pieces

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._wake

    def close(self) -> None:
        """The thread has ended, or is given up."""
        with self._changed:
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1

    def _wake_reader(self) -> None:
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)


def _size(message: Any) -> int:
    return len(message.value or b"")
