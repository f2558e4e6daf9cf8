"""Handling of SIGTERM and SIGHUP: they unwind the stack as Ctrl-C does, so that `finally` blocks run."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

from agiledart_cli.errors import TerminatedError

_ENDS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Handler = Callable[[int, FrameType | None], object] | signal.Handlers


@contextmanager
def _handled(numbers: tuple[int, ...], handler: Handler) -> Iterator[dict[int, Any]]:
    """Replace the handlers of these signals inside the block; yields the previous handlers."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield before
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise TerminatedError


def unwound_by_signals() -> AbstractContextManager[object]:
    """Make SIGTERM and SIGHUP raise `TerminatedError` inside the block; Ctrl-C raises KeyboardInterrupt as usual."""
    return _handled((signal.SIGTERM, signal.SIGHUP), _terminate)


def ignoring_signals() -> AbstractContextManager[object]:
    """Ignore the signals that end a process inside the block; for cleaning up in bounded time."""
    return _handled(_ENDS, signal.SIG_IGN)


@contextmanager
def deferred() -> Iterator[None]:
    """Defer the signals that end a process to the end of the block; for creating a resource together with its cleanup.

    A child process that is started inside the block has the default handlers, as usual.
    """
    came: list[int] = []
    before: dict[int, Any] = {}
    try:
        with _handled(_ENDS, lambda number, _: came.append(number)) as before:
            yield
    finally:
        for number in came[:1]:
            handler = before[number]
            if callable(handler):
                handler(number, None)
            else:
                signal.raise_signal(number)
