"""Simulated cloud: hosts, what its list shows, and its bill. It draws nothing; its user says what goes wrong."""

from dataclasses import dataclass
from math import ceil

from agiledart_provisioning.gate.gate_messages import ProviderHost


@dataclass(slots=True)
class CloudHost:
    """A host.

    Attributes:
        listed_ns: the list shows it from then on.
        ended_ns: 0 while it runs.
    """

    host_id: str
    host_name: str
    start_data: str
    created_ns: int
    listed_ns: int
    ended_ns: int = 0


class SimulatedCloud:
    """All hosts that ever ran, by id."""

    def __init__(self) -> None:
        self.hosts: dict[str, CloudHost] = {}

    def create(self, host_name: str, start_data: str, now: int, lists_after_ns: int = 0) -> CloudHost:
        """Make a host; a second one of the same name is a double."""
        host = CloudHost(f"h{len(self.hosts) + 1}", host_name, start_data, now, now + lists_after_ns)
        self.hosts[host.host_id] = host
        return host

    def running(self) -> list[CloudHost]:
        """Return the hosts that run."""
        return [host for host in self.hosts.values() if not host.ended_ns]

    def listed(self, prefix: str, now: int) -> tuple[ProviderHost, ...]:
        """Return what a list shows at a time."""
        return tuple(
            described(host) for host in self.running() if host.host_name.startswith(prefix) and host.listed_ns <= now
        )

    def end(self, host_id: str, now: int) -> bool:
        """End a host; return false when it does not run."""
        host = self.hosts.get(host_id)
        if host is None or host.ended_ns:
            return False
        host.ended_ns = now
        return True

    def billed_units(self, host: CloudHost, btu_ns: int, now: int) -> int:
        """Return the units that have started."""
        return max(1, ceil(((host.ended_ns or now) - host.created_ns) / btu_ns))


def described(host: CloudHost) -> ProviderHost:
    """Return a host as a gate sees it."""
    return ProviderHost(host.host_id, host.host_name, host.created_ns)
