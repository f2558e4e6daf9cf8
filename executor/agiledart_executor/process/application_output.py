"""Standard output of a process that several applications share: printed text goes to the application that is at work.

Each executor program runs in a context of its own (`contextvars`), and the event loop runs each callback in the context in which it
was registered. A thread that user code starts has no such context: its output is the process's.
"""

import contextvars
import io
import os
import sys
from typing import Final

OUTPUT: Final[contextvars.ContextVar[int]] = contextvars.ContextVar("agiledart_output", default=1)
"""Descriptor to which the present code prints."""


class ApplicationOutput(io.TextIOBase):
    """Stands in for `sys.stdout` and `sys.stderr`; writes at once to the descriptor of the present application."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return OUTPUT.get()

    @property
    def buffer(self) -> io.FileIO:
        """Return the same output for bytes."""
        return io.FileIO(OUTPUT.get(), "w", closefd=False)

    def write(self, text: str) -> int:
        data, descriptor = memoryview(text.encode("utf-8", "replace")), OUTPUT.get()
        while data:
            data = data[os.write(descriptor, data) :]
        return len(text)


def divide_output() -> None:
    """Divide the output of this process by application from now on."""
    sys.stdout = sys.stderr = ApplicationOutput()
