"""Upscaling of one type: the best host, else capacity freed from another type, else a lease.

Source: [Hochreiner 2017] §4.2.
"""

from collections import Counter

from agiledart_kernel.errors import ConfigurationError
from agiledart_provisioning.actions import Action, ActionKind, Round
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.state import Host, OperatorType
from agiledart_provisioning.utilities import best_host, down_utility, host_utility


class Upscaler:
    """Upscaling in one round; it counts the instances that were stopped to free capacity, and stops few of each type."""

    def __init__(self, current: Round, settings: ProvisioningSettings) -> None:
        self._round, self._settings = current, settings
        self._stopped: Counter[str] = Counter()

    def scale_up(self, entry: OperatorType, why: str) -> None:
        """Start one instance of a type. Raises ConfigurationError when no machine of the offer can hold it."""
        host = self._host_with_capacity(entry) or self._free_capacity(entry) or self._lease(entry)
        suffix = "" if host.is_running else "; it starts when the host runs"
        self._round.do(Action(ActionKind.START, host.name, why + suffix, entry.name))

    def _host_with_capacity(self, entry: OperatorType) -> Host | None:
        """Return the best running host, else a host that was leased in this round or still starts."""
        state = self._round.state
        return best_host(state, entry, self._settings) or best_host(state, entry, self._settings, running=False)

    def _free_capacity(self, entry: OperatorType) -> Host | None:
        """Stop instances of the types that miss them least until a host has capacity. Return this host.

        Departs: at most `stops_a_round` instances of a type are stopped, as in the authors' prototype; else two types oscillate.
        """
        while True:
            state = self._round.state
            utility, victim = max(
                (
                    (down_utility(state, other, self._settings), other.name)
                    for other in state.types
                    if other.name != entry.name and self._stopped[other.name] < self._settings.stops_a_round
                ),
                default=(0.0, ""),
            )
            if utility <= 0.0 or not (hosts := [host for host in state.hosts if host.instances.get(victim)]):
                return None
            chosen = max(hosts, key=lambda host: (self._makes_room(host, victim, entry), -state.free_memory(host)))
            self._stopped[victim] += 1
            why = f"frees capacity for {entry.name}; its own utility of scaling down is {utility:.6g}"
            self._round.do(Action(ActionKind.STOP, chosen.name, why, victim))
            if (freed := best_host(self._round.state, entry, self._settings)) is not None:
                return freed

    def _makes_room(self, host: Host, victim: str, entry: OperatorType) -> bool:
        after = self._round.state.with_instances(host.name, victim, -1)
        return host.is_running and host_utility(after, after.host_named(host.name), entry, self._settings) >= 0.0

    def _lease(self, entry: OperatorType) -> Host:
        state = self._round.state
        refuse_oversized(entry, state.offer.cpu, state.offer.memory)
        name = self._round.new_host_name()
        self._round.do(Action(ActionKind.LEASE, name, f"no host has capacity for {entry.name}"))
        return self._round.state.host_named(name)


def refuse_oversized(entry: OperatorType, cpu: float, memory: float) -> None:
    """Raise ConfigurationError when an instance of a type needs more than a whole machine has."""
    for need, capacity, unit in ((entry.cpu, cpu, "shares of CPU"), (entry.memory, memory, "MB of memory")):
        if need > capacity:
            raise ConfigurationError(
                f"{entry.name} needs {need:g} {unit}; the largest machine on offer has {capacity:g}. MachineOffer a larger one."
            )
