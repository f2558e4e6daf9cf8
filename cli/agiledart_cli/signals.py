"""Ends from outside: SIGTERM and a closed terminal unwind the stack as Ctrl-C does, so that `finally` runs."""

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
    """These signals have another handler in here; gives the ones that they had."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield before
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise TerminatedError


def unwound_by_signals() -> AbstractContextManager[object]:
    """SIGTERM and SIGHUP raise `TerminatedError` in here; Ctrl-C raises KeyboardInterrupt as always."""
    return _handled((signal.SIGTERM, signal.SIGHUP), _terminate)


def ignoring_signals() -> AbstractContextManager[object]:
    """Signals that end a process are ignored in here: for cleaning up, which is bounded in time."""
    return _handled(_ENDS, signal.SIG_IGN)


@contextmanager
def deferred() -> Iterator[None]:
    """Signals that end a process wait until the end of this block: for making something together with its cleaning up.

    A child that is started in here gets the system's own handling of them, as always.
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
