"""Work that Ctrl-C can abandon: it runs in its own thread, while the main thread, which gets the signal, only waits.

Without it, Ctrl-C during a call to Spark's JVM prints several tracebacks.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread, current_thread
from typing import TypeVar

T = TypeVar("T")


class _Work(Thread):
    is_abandoned = False


def is_abandoned() -> bool:
    """Return whether Ctrl-C has abandoned the work that calls this: then its errors come from the end of the process."""
    return isinstance(thread := current_thread(), _Work) and thread.is_abandoned


def interruptible(work: Callable[[], T]) -> T:
    """Return or raise the result of `work`. Ctrl-C raises KeyboardInterrupt and abandons it; it ends with the process."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  the waiting thread raises it
            done.set_exception(error)

    thread = _Work(target=run, name="interruptible", daemon=True)
    try:
        thread.start()
        return done.result()
    except KeyboardInterrupt:
        thread.is_abandoned = True
        raise
