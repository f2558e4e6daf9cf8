"""Work that Ctrl-C can leave where it stands: in a thread of its own, while the main thread, which gets the signal, only waits.

PySpark answers a Ctrl-C in the midst of a call to its JVM with several tracebacks.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def interruptible(work: Callable[[], T]) -> T:
    """What `work` returns or raises. At a Ctrl-C it is left behind with KeyboardInterrupt, and ends with the process."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  whatever it is, it belongs to who waits
            done.set_exception(error)

    Thread(target=run, name="interruptible", daemon=True).start()
    return done.result()
