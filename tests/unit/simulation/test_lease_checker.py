"""Clock of L6: time without a lease counts against the gate that a host belongs to."""

from agiledart_kernel.instants import SECOND
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.providers.simulated_cloud import SimulatedCloud
from agiledart_simulation.leases.lease_checker import LeaseChecker


def complaints(gates: list[tuple[int, str]]) -> list[str]:
    """Return what is said about a host without an entry that belongs to these gates at these seconds."""
    lines: list[str] = []
    cloud = SimulatedCloud()
    checker = LeaseChecker(GateSettings("act", 1, 2, "small", 1, 600 * SECOND), cloud, lines.append)
    host = cloud.create("agiledart-5e1f0000-g0-1", "", 0)
    for second, gate in gates:
        checker.check_orphan(host, gate, {}, 0, second * SECOND)
    return lines


def test_a_host_that_its_gate_never_books_is_reported() -> None:
    assert complaints([(0, "g0"), (900, "g0")]) == []
    assert len(complaints([(0, "g0"), (901, "g0")])) == 1


def test_the_clock_begins_anew_when_another_gate_adopts_the_host() -> None:
    assert complaints([(0, "g0"), (901, "g1"), (1_801, "g1")]) == []
    assert len(complaints([(0, "g0"), (901, "g1"), (1_802, "g1")])) == 1
