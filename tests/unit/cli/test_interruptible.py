"""Ctrl-C leaves work that cannot be interrupted."""

import signal
from threading import Event, Thread, main_thread

import pytest

from agiledart_cli.interruptible import interruptible


def test_what_it_returns_and_raises_comes_back() -> None:
    assert interruptible(lambda: 7) == 7
    with pytest.raises(SystemExit, match="8"):
        interruptible(lambda: exit(8))


def test_ctrl_c_leaves_it_where_it_stands() -> None:
    began, gate = Event(), Event()
    ended: list[bool] = []

    def work() -> None:
        began.set()
        gate.wait()
        ended.append(True)

    def press() -> None:
        began.wait()
        signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)

    Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(work)
    assert not ended
    gate.set()
