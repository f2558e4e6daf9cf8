"""`Away`: what is at the other end is away, since when and why, when it is tried again; told once, however often it happens."""

import time
from typing import Final

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0

_MOST_NOTES: Final = 100


class Away:
    """How the way to something stands. One thread changes it, others may ask.

    Args:
        back: what is told when it is there again.
    """

    def __init__(self, back: str) -> None:
        self._back = back
        self._why = self._what = ""
        self._since = self._next_try = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._notes: list[str] = []

    def gone(self, why: str, after: float | None = None, what: str = "") -> float:
        """It did not work, because; returns the seconds to wait, ever more.

        Args:
            after: seconds that it asks for.
            what: that it is away, where `why` does not say so: `not connected to HOST:PORT`.
        """
        wait = min(self._pause if after is None else after, LONGEST_PAUSE_SECONDS)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        now = time.monotonic()
        self._next_try = now + wait
        if why != self._why:
            if not self._why:
                self._since = now
            self._why, self._what = why, what
            told = f"{what} ({why})" if what else why
            self.note(f"{told}; next try in {wait:.1f} s, then ever later up to every {LONGEST_PAUSE_SECONDS:.0f} s")
        return wait

    def there(self) -> None:
        """It works."""
        if self._why:
            self._why = ""
            self.note(self._back)
        self._pause = FIRST_PAUSE_SECONDS

    @property
    def why(self) -> str:
        """Why it is away; empty when it is not."""
        return self._why

    def standing(self, more: str = "") -> str:
        """For `status`; empty when all is well. `more`: what else is to be said of it."""
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
        if len(self._notes) < _MOST_NOTES:
            self._notes.append(text)

    def take_notes(self) -> list[str]:
        """What users should know."""
        notes = self._notes[:]
        del self._notes[: len(notes)]
        return notes
