"""Children that user code forks from an executor: they may do what they like, but not go on as a second executor.

A child has copies of the engine's sockets and files. If it returned from the user's function into the engine, its rows would be
there twice, and its bytes would corrupt what its parent sends.
"""

import contextlib
import os

EXIT_FORKED = 1
"""Exit code of a child that returned into the engine."""


class ForkedChild:
    """Knows whether this process is a child that user code forked.

    Attributes:
        is_here: this process is such a child.
    """

    __slots__ = ("is_here",)

    def __init__(self) -> None:
        self.is_here = False

    def watch(self) -> None:
        """Notice forks from now on, until the process ends."""
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self.is_here = True

    def end_child(self, name: str) -> None:
        """End this process if it is a child, because it has returned into the engine; else do nothing.

        Args:
            name: of the user code, for the text in the application's logs.
        """
        if not self.is_here:
            return
        text = f"{name}: user code forked its process, and the child returned; the child was ended (end it with os._exit)\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode("utf-8", "replace"))
        os._exit(EXIT_FORKED)
