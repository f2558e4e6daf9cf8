"""The clock of a host in tests that say what happens within one turn."""

import time
from types import SimpleNamespace

import pytest

from agiledart_executor.instances import epoch_barriers, instance_host, wake_ups


class Clock:
    """Moves as a test says, by so much with each look or `now`: a machine with much else to do ends no turn early."""

    def __init__(self, patch: pytest.MonkeyPatch, ns_a_look: int = 0) -> None:
        self.now = 1_000_000
        self._ns_a_look = ns_a_look
        for module in (instance_host, epoch_barriers, wake_ups):
            patch.setattr(module, "time", SimpleNamespace(monotonic_ns=self._look, time_ns=time.time_ns))

    def _look(self) -> int:
        self.now += self._ns_a_look
        return self.now
