"""What machines say of themselves: `violations()` of each, now and then after its events, and of all when a run asks.

What holds of one machine's own state is known to the machine; here it is only asked, and the answers are kept.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from agiledart_kernel.machine import Machine
from agiledart_simulation.world.simulated_node import SimulatedNode
from agiledart_simulation.world.world import World

_EVERY = 101
"""Events between two looks: a look costs some two to five steps, so a run takes a twentieth longer. Prime, so that no beat of the
ring is always missed."""

_MAX_KEPT = 20


class CheckedMachine(Machine, Protocol):
    """A machine that can say what does not hold of it."""

    def violations(self) -> list[str]:
        """Sentences; empty when all is well."""
        ...


M = TypeVar("M", bound=CheckedMachine)


def machine_violations(machines: Iterable[CheckedMachine]) -> list[str]:
    """What must hold of each machine at any time and does not."""
    return [line for machine in machines for line in machine.violations()]


class PeriodicChecks:
    """Looks at the node that has had an event, each time after so many of them.

    Attributes:
        wrong: what was found, at most 20 sentences.
    """

    def __init__(self, world: World[M], every: int = _EVERY) -> None:
        self._every = self._left = every
        self.wrong: list[str] = []
        world.observers.append(self.look)

    def look(self, node: SimulatedNode[M]) -> None:
        """A node has had an event."""
        self._left -= 1
        if self._left == 0:
            self._left = self._every
            if len(self.wrong) < _MAX_KEPT:
                self.wrong.extend(node.machine.violations())
