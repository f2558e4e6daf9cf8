"""A gate that finds a host after a long silence: the units that have begun meanwhile count before it adopts the host.

The drawn faults do not lead here: the silence lasts longer than two billing time units, and the host has not ended itself.
"""

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseState
from agiledart_simulation.leases.lease_checker import LeaseChecker
from agiledart_simulation.leases.leased_network import LeasedNetwork
from agiledart_simulation.runs.leases_run import MINUTE, GateProcess, LeasesRun
from agiledart_simulation.runs.scenario import draw
from tests.simulation.lease_mutants import adopted_units_not_booked

UNIT_NS, PRICE = 10 * MINUTE, 1_000_000


class LongSilence(LeasesRun):
    """Gate g0 dies 5 s before its host's first unit ends, in a network partition that hides the host from gate g1."""

    def __init__(self, max_spend: int) -> None:
        super().__init__(draw(1, name="leases"))
        self.settings = GateSettings(
            "act", 1, max_spend * PRICE, "small", PRICE, UNIT_NS, capacity=4, window_ns=80 * SECOND
        )
        self.network = LeasedNetwork(RandomStream(1, "work"), 2)
        self.checker = LeaseChecker(self.settings, self.cloud, self.complain)
        self.gates = [GateProcess(0), GateProcess(1)]

    def play(self, silence_ns: int) -> None:
        """Let g1 see the host again when it has been silent for a time."""
        for gate in self.gates:
            self._start(gate)
        self.at(self.now + SECOND, self._view)
        self.network.demand = 10
        self.run_until(self.now + 5 * MINUTE)
        (lease,) = self.gates[0].disk.values()
        assert lease.state is LeaseState.JOINED
        self.network.nodes[lease.node].side = 0
        self.run_until(lease.paid_until_ns - 5 * SECOND)
        self.network.is_parted, self.gates[0].is_gone = True, True
        self._kill(self.gates[0], "gone")
        self.network.demand = 1
        self.run_until(lease.paid_until_ns + silence_ns)
        self._heal()
        self.run_until(self.now + MINUTE)


@pytest.mark.parametrize(("max_spend", "units"), [(2, 0), (4, 0), (5, 3)])
def test_a_gate_adopts_a_host_only_when_its_limit_pays_for_the_units_that_have_begun(
    max_spend: int, units: int
) -> None:
    run = LongSilence(max_spend)
    run.play(21 * MINUTE)
    assert tuple(run.violations) == ()
    assert run.counts.get("adopt", 0) == (1 if units else 0)
    assert sum(entry.units for entry in run.gates[1].disk.values()) == units


def test_a_gate_that_takes_begun_units_as_paid_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        adopted_units_not_booked(patch)
        run = LongSilence(2)
        run.play(21 * MINUTE)
    assert [line.partition(" at ")[0] for line in run.violations] == ["L3: g1 has booked 3000000; max_spend = 2000000"]
