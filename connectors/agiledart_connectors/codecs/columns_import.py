"""`ColumnsImport`: NumPy and pyarrow are imported beside the work of a process, not in the middle of it.

That takes a third of a second, and seconds where they come from a cold disk; meanwhile links, timers and the rows of other
instances wait. In a thread the longest wait is some ten milliseconds.
"""

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Final

_MODULES: Final = ("numpy", "pyarrow", "pyarrow.compute", "pyarrow.csv")


def _import_all() -> None:
    for name in _MODULES:
        import_module(name)


class ColumnsImport:
    """Import of the column modules in a thread; it begins at the first question for it.

    Args:
        load: function that the thread calls.
    """

    __slots__ = ("_began", "_calls", "_ended", "_load", "_lock")

    def __init__(self, load: Callable[[], object] = _import_all) -> None:
        self._load = load
        self._began = self._ended = False
        self._calls: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def has_ended(self) -> bool:
        """Return whether the modules can be used without waiting. After a failed import their first user gets the error."""
        if not self._began:
            self._began = True
            try:
                threading.Thread(target=self._run, name="columns import", daemon=True).start()
            except RuntimeError:  # the system has no free thread: users of columns import the modules themselves
                self._end()
        return self._ended

    def call_when_done(self, call: Callable[[], None]) -> None:
        """Call this once it has ended: from its thread, or now."""
        with self._lock:
            if not self._ended:
                self._calls.append(call)
                return
        call()

    def _run(self) -> None:
        try:
            self._load()
        except ImportError:
            pass
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._ended = True
            calls, self._calls = self._calls, []
        for call in calls:
            call()


PROCESS_IMPORT: Final = ColumnsImport()
"""Import for a process whose links must not wait for it."""
