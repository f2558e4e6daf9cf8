"""Clocks of agents that are wrong, by libfaketime; it is loaded into them before everything else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.mesh import AgentProcess

_PLACES = ("faketime/libfaketime.so.1", "libfaketime.so.1")


def found_library() -> Path | None:
    """libfaketime, where it is installed."""
    return next((place for place in _places() if place.exists()), None)


def library() -> Path:
    """libfaketime; skips the calling test without it."""
    found = found_library()
    if found is None:
        pytest.skip("NOT RUN: wrong clocks need libfaketime (Debian: apt-get install libfaketime)")
    return found


def _places() -> Iterator[Path]:
    for place in _PLACES:
        yield from sorted(Path("/usr/lib").glob(f"*/{place}"))
        yield Path("/usr/lib") / place


class WrongClock:
    """The wall clock of one agent and its executors; monotonic clocks go on. Make it before the agent starts; set it at any time.

    Args:
        said: arguments of libfaketime: seconds beside the right time (`-3600`), or a moment (`@1970-01-01 00:01:00`).
    """

    def __init__(self, agent: AgentProcess, said: str = "+0") -> None:
        self._file = agent.log.with_suffix(".clock")
        self.set(said)
        agent.environment |= {
            "LD_PRELOAD": str(found_library() or ""),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, said: str) -> None:
        """From now on (a second later) it shows this."""
        self._file.write_text(said + "\n")
