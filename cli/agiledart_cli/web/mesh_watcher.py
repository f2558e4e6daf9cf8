"""Watcher of one mesh: while a page is open, a thread asks the agent once a second; without viewers it asks nothing."""

import threading
import time
from collections.abc import Callable
from typing import Any

from agiledart_cli.web.mesh_figures import MeshFigures
from agiledart_control.control_client import ControlClient
from agiledart_kernel.errors import AgileDartError

SAMPLE_SECONDS = 1.0
LEAST_PAUSE_SECONDS = 0.2
"""Pause after a sample that took longer than the interval."""


class MeshWatcher:
    """Events of a mesh for the viewers of a page; a slow viewer gets the newest event, not each.

    Args:
        connect: opens a connection to the agent; the watcher opens another one when it is lost.
    """

    def __init__(self, connect: Callable[[], ControlClient]) -> None:
        self._connect = connect
        self._figures = MeshFigures()
        self._changed = threading.Condition()
        self._viewers: dict[object, str] = {}
        self._thread: threading.Thread | None = None
        self._event: dict[str, Any] = {}
        self._number = 0
        self._is_closed = False

    def enter(self, viewer: object, application: str) -> None:
        """Add a viewer, which looks at one application (empty: at the mesh). The first viewer starts the sampling."""
        with self._changed:
            self._viewers[viewer] = application
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mesh watcher", daemon=True)
                self._thread.start()

    def leave(self, viewer: object) -> None:
        """Remove a viewer; the last one ends the sampling."""
        with self._changed:
            self._viewers.pop(viewer, None)
            self._changed.notify_all()

    def close(self) -> None:
        """End the sampling and all waits."""
        with self._changed:
            self._is_closed = True
            self._viewers.clear()
            self._changed.notify_all()

    def wait(self, after: int, timeout: float) -> tuple[int, dict[str, Any]] | None:
        """Return number and content of the newest event after this number; None when none comes in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > after or self._is_closed, timeout)
            return (self._number, self._event) if self._number > after else None

    @property
    def is_sampling(self) -> bool:
        """Return whether a thread asks the agent."""
        with self._changed:
            return self._thread is not None

    @property
    def has_viewers(self) -> bool:
        """Return whether a page is open."""
        with self._changed:
            return bool(self._viewers)

    def _run(self) -> None:
        client: ControlClient | None = None
        away_since: float | None = None
        try:
            while (on_screen := self._on_screen()) is not None:
                began = time.monotonic()
                try:
                    client = client or self._connect()
                    event = self._figures.take(client, on_screen, began)
                    away_since = None
                except AgileDartError as error:
                    if client is not None:
                        client.close()
                    client = None
                    away_since = began if away_since is None else away_since
                    event = {"away_s": round(began - away_since, 1), "reason": str(error)}
                self._publish(event, began)
        finally:
            if client is not None:
                client.close()

    def _on_screen(self) -> set[str] | None:
        """Return the applications on screen; None when there is no viewer: then the thread ends."""
        with self._changed:
            if not self._viewers:
                self._thread = None
                return None
            return {name for name in self._viewers.values() if name}

    def _publish(self, event: dict[str, Any], began: float) -> None:
        """Hand an event to the viewers, and wait for the next sample."""
        with self._changed:
            self._number += 1
            self._event = event
            self._changed.notify_all()
            pause = max(LEAST_PAUSE_SECONDS, SAMPLE_SECONDS - (time.monotonic() - began))
            self._changed.wait_for(lambda: not self._viewers, pause)
