"""Rules of an application about its hosts, as recovery asks for them when it chooses the host of a lost instance.

Recovery knows no labels and no topology; the composed node answers. A rule about a host alone binds: the run waits rather than run
where its user forbade it. A rule about two instances gives way: the run goes on, and is moved afterwards.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Protocol

from agiledart_kernel.peer import Peer
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, RegisterValue


class HostFit(IntEnum):
    """Fitness of a host for an instance by rules; the least value is the best."""

    ALLOWED = 0
    BREAKS_PAIR = 1
    """It breaks a rule about two instances."""
    FORBIDDEN = 2


class HostRules(Protocol):
    """Rules of all runs."""

    def fit(
        self, value: RegisterValue, assignment: Assignment, host: Peer, hosts: Mapping[InstanceId, Peer]
    ) -> HostFit:
        """Return how well a host fits an instance.

        Args:
            hosts: of the instances that have one already.
        """
        ...

    def forbidding(self, value: RegisterValue, assignment: Assignment, host: Peer) -> str:
        """Return the rule that forbids a host for an instance, in words; empty: none."""
        ...


class NoHostRules:
    """Rules of a network without any."""

    def fit(
        self, value: RegisterValue, assignment: Assignment, host: Peer, hosts: Mapping[InstanceId, Peer]
    ) -> HostFit:
        """Allow every host."""
        return HostFit.ALLOWED

    def forbidding(self, value: RegisterValue, assignment: Assignment, host: Peer) -> str:
        """Forbid no host."""
        return ""
