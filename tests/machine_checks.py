"""Machines that are looked at after their steps, in whatever test drives them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import Effect, Event
from agiledart_simulation.checkers.periodic_checks import CheckedMachine, M
from agiledart_simulation.world.simulated_node import SimulatedNode
from agiledart_simulation.world.world import World


def judged_at_each_step(kind: type[CheckedMachine], every: int = 1) -> Callable[..., Iterator[None]]:
    """An automatic fixture: all machines of a class must hold after each step, or after each so many of all of them."""

    @pytest.fixture(autouse=True)
    def judged(monkeypatch: pytest.MonkeyPatch) -> None:
        step = kind.step
        left = every

        def judged_step(self: Any, event: Event, now: Instant) -> Sequence[Effect]:
            nonlocal left
            effects = step(self, event, now)
            left -= 1
            if left == 0:
                left = every
                hold(self, event)
            return effects

        monkeypatch.setattr(kind, "step", judged_step)

    return judged


def look_at(world: World[M], every: int = 1) -> None:
    """The same in one world."""
    left = every

    def look(node: SimulatedNode[M]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            left = every
            hold(node.machine, None)

    world.observers.append(look)


def hold(machine: CheckedMachine, event: Event | None) -> None:
    """Fails the test when something that must hold of a machine does not."""
    found = machine.violations()
    assert not found, f"after {event}: {found}"
