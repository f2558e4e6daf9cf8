"""Periodic checks of each machine's own invariants, after some of its events, and of all machines on request.

A machine checks its own state with `violations()`. This module only calls it and keeps the answers.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from agiledart_kernel.machine import Machine
from agiledart_simulation.world.simulated_node import SimulatedNode
from agiledart_simulation.world.world import World

_EVERY = 101
"""Events between two checks. A check costs two to five steps, so a run takes a twentieth longer. Prime, so that no periodic
event of the ring is always missed.
"""

_MAX_KEPT = 20


class CheckedMachine(Machine, Protocol):
    """A machine that can report its violated invariants."""

    def violations(self) -> list[str]:
        """Return violations as sentences; empty when all is well."""
        ...


M = TypeVar("M", bound=CheckedMachine)


def machine_violations(machines: Iterable[CheckedMachine]) -> list[str]:
    """Return the violated invariants of all machines."""
    return [line for machine in machines for line in machine.violations()]


class PeriodicChecks:
    """Check the node that has had an event, once in so many events.

    Attributes:
        wrong: the violations, at most 20 sentences.
    """

    def __init__(self, world: World[M], every: int = _EVERY) -> None:
        self._every = self._left = every
        self.violations: list[str] = []
        world.observers.append(self.check)

    def check(self, node: SimulatedNode[M]) -> None:
        """Check a node that has had an event, if its turn has come."""
        self._left -= 1
        if self._left == 0:
            self._left = self._every
            if len(self.violations) < _MAX_KEPT:
                self.violations.extend(node.machine.violations())
