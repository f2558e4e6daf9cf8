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


def at_once() -> bool:
    """For who rather waits: it is imported where it is first used."""
    return True


class ColumnsImport:
    """Begins when it is first asked for.

    Args:
        load: what to do in the thread.
    """

    __slots__ = ("_began", "_ended", "_load")

    def __init__(self, load: Callable[[], None] = _import_all) -> None:
        self._load = load
        self._began = self._ended = False

    def has_ended(self) -> bool:
        """Whether the modules can be used without waiting. One that cannot be imported tells so whoever uses it then."""
        if not self._began:
            self._began = True
            threading.Thread(target=self._run, name="columns import", daemon=True).start()
        return self._ended

    def _run(self) -> None:
        try:
            self._load()
        except ImportError:
            pass
        finally:
            self._ended = True
