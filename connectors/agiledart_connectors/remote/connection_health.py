"""`ConnectionHealth`: since when and why a peer is away, and when to try again; users get one notice, however often it fails."""

import time
from typing import Final

MIN_BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 30.0

_MAX_NOTICES: Final = 100


class ConnectionHealth:
    """Status of the connection to a peer. One thread changes it, others may ask.

    Args:
        back: notice for users when the peer is there again.
    """

    def __init__(self, back: str) -> None:
        self._back = back
        self._why = self._what = ""
        self._since = self._next_try = 0.0
        self._pause = MIN_BACKOFF_SECONDS
        self._notices: list[str] = []

    def report_failure(self, why: str, after: float | None = None, what: str = "") -> float:
        """It did not work, because; returns the seconds to wait, ever more.

        Args:
            after: seconds that it asks for.
            what: that it is away, where `why` does not say so: `not connected to HOST:PORT`.
        """
        wait = min(self._pause if after is None else after, MAX_BACKOFF_SECONDS)
        self._pause = min(2 * self._pause, MAX_BACKOFF_SECONDS)
        now = time.monotonic()
        self._next_try = now + wait
        if why != self._why:
            if not self._why:
                self._since = now
            self._why, self._what = why, what
            description = f"{what} ({why})" if what else why
            self.note(
                f"{description}; next try in {wait:.1f} s, then ever later up to every {MAX_BACKOFF_SECONDS:.0f} s"
            )
        return wait

    def report_success(self) -> None:
        """It works."""
        if self._why:
            self._why = ""
            self.note(self._back)
        self._pause = MIN_BACKOFF_SECONDS

    @property
    def why(self) -> str:
        """Why it is away; empty when it is not."""
        return self._why

    def connection_status(self, more: str = "") -> str:
        """Return a text for `status`; empty when all is well. `more`: further words about the peer."""
        why = self._why
        if not why:
            return ""
        now = time.monotonic()
        following = f"{more}next try in {max(0.0, self._next_try - now):.0f} s"
        if self._what:
            return f"{self._what} for {now - self._since:.0f} s ({why}), {following}"
        return f"{why}, for {now - self._since:.0f} s; {following}"

    def note(self, text: str) -> None:
        """Something that users should know."""
        if len(self._notices) < _MAX_NOTICES:
            self._notices.append(text)

    def take_notices(self) -> list[str]:
        """Return and forget notices for users."""
        notices = self._notices[:]
        del self._notices[: len(notices)]
        return notices
