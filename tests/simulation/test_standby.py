"""Kills around a standby in the simulator: of the primary, of the standby, of both; rows stay exact, and the run goes on."""

from collections.abc import Callable
from typing import Final

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.effects import HoldStandby
from agiledart_recovery.wire.register_value import RegisterValue
from agiledart_simulation.runs.recovery_run import RecoveryRun
from agiledart_simulation.runs.scenario import draw

SEEDS: Final = (12, 14)
"""Seeds whose stages ask for standbys, on hosts without pinned instances."""

Victims = Callable[[NodeId, NodeId], tuple[NodeId, ...]]


class StandbyRun(RecoveryRun):
    """A run of the scenario without drawn faults: nodes are killed once the first stage has a standby that is up to date.

    Attributes:
        primary, standby: nodes of that stage and its standby before the kill; `heir`: of the stage ten seconds afterwards.
        after: value of the register at that time.
    """

    def __init__(self, seed: int, victims: Victims) -> None:
        super().__init__(draw(seed, name="recovery"))
        self._victims = victims
        self.primary = self.standby = self.heir = NodeId(0)
        self.after: RegisterValue

    def play(self) -> None:
        """Kill, let the other nodes work on, then bring the dead back, and check the rows."""
        self._build()
        self.until(lambda value: value.committed.epoch >= 1 and self._is_held(value), "a standby")
        stage = next(assignment for assignment in self.value.plan.assignments if assignment.standby)
        self.primary = stage.host.node
        self.standby = next(held.host.node for held in self.value.standbys if held.instance == stage.instance)
        for node in self._victims(self.primary, self.standby):
            self.crash(node, is_power=False)
            self.stays_down[node] = self.world.now + 60 * SECOND
        self.wait(10 * SECOND)
        self.after = self.value
        self.heir = next(each.host.node for each in self.after.plan.assignments if each.instance == stage.instance)
        self.stays_down = {}
        for node in self.ids:
            self.start(node)
        began = self.world.now
        while self.world.now - began < 120 * SECOND and not self.ledger.violations and not self._is_quiet():
            self.wait(SECOND)
        self.ledger.check_end(self.rows)
        assert not self.ledger.violations, self.ledger.violations

    @property
    def value(self) -> RegisterValue:
        """The newest acknowledged value."""
        value = self.ledger.newest
        assert value is not None
        return value

    def until(self, condition: Callable[[RegisterValue], bool], what: str) -> None:
        """Let time pass until a condition on the register's value is true."""
        for _ in range(300):
            if condition(self.value):
                return
            self._pass(SECOND // 10)
        raise AssertionError(f"not within 30 s: {what}")

    def _is_held(self, value: RegisterValue) -> bool:
        """Return whether the standby of the first stage holds the committed epoch ready."""
        for standby in value.standbys[:1]:
            held = self.world.nodes[standby.host.node].machine.held
            ready = (
                ()
                if not isinstance(held, HoldStandby)
                else [saved for saved in held.saved if saved.instance == standby.instance]
            )
            return bool(ready) and ready == list(value.saved_for(standby.instance))
        return False


@pytest.mark.xdist_group("recovery")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_standby_takes_over_when_the_primary_is_killed(seed: int) -> None:
    run = StandbyRun(seed, lambda host, standby: (host,))
    run.play()
    assert run.heir == run.standby
    assert run.counts["standby was up to date"] >= 1


@pytest.mark.xdist_group("recovery")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_loss_of_the_standby_begins_no_attempt_and_another_is_chosen(seed: int) -> None:
    run = StandbyRun(seed, lambda host, standby: (standby,))
    run.play()
    assert run.after.attempt == 1
    assert run.heir == run.primary
    assert run.standby not in [standby.host.node for standby in run.after.standbys]
    assert len(run.after.standbys) == 2


@pytest.mark.xdist_group("recovery")
@pytest.mark.parametrize("seed", SEEDS)
def test_another_node_takes_over_when_primary_and_standby_are_killed(seed: int) -> None:
    run = StandbyRun(seed, lambda host, standby: (host, standby))
    run.play()
    assert run.heir not in (run.primary, run.standby)
    assert "standby was up to date" not in run.counts
