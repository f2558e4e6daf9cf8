"""Work that Ctrl-C can abandon: it runs in its own thread, while the main thread, which gets the signal, only waits.

Without it, Ctrl-C during a call to Spark's JVM prints several tracebacks.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def interruptible(work: Callable[[], T]) -> T:
    """Return or raise the result of `work`. Ctrl-C raises KeyboardInterrupt and abandons it; it ends with the process."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  the waiting thread raises it
            done.set_exception(error)

    Thread(target=run, name="interruptible", daemon=True).start()
    return done.result()
