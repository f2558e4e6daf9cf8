"""Ends from outside: SIGTERM and a closed terminal unwind the stack as Ctrl-C does, so that `finally` runs."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from agiledart_cli.errors import TerminatedError

_ENDS: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise TerminatedError


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `TerminatedError` in here; Ctrl-C raises KeyboardInterrupt as always."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Signals that end a process are ignored in here: for cleaning up, which is bounded in time."""
    before = {number: signal.getsignal(number) for number in _ENDS}
    for number in _ENDS:
        signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """Signals that end a process wait until the end of this block: for making something together with its cleaning up.

    A child that is started in here gets the system's own handling of them, as always.
    """
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in _ENDS}
    for number in _ENDS:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came[:1]:
            handler = before[number]
            if callable(handler):
                handler(number, None)
            else:
                signal.raise_signal(number)
