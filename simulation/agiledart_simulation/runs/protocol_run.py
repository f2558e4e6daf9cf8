"""Interface of a recovery run, as its faults need it."""

from typing import Protocol

from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_simulation.checkers.recovery_ledger import RecoveryLedger
from agiledart_simulation.pipeline.disk import Disk
from agiledart_simulation.pipeline.recovery_host import RecoveryHost
from agiledart_simulation.runs.scenario import Scenario
from agiledart_simulation.world.world import World


class ProtocolRun(Protocol):
    """Functions of a recovery run that its faults need."""

    scenario: Scenario
    random: RandomStream
    world: World[RecoveryHost]
    ids: list[NodeId]
    disks: dict[NodeId, Disk]
    ledger: RecoveryLedger
    stays_down: dict[NodeId, int]
    silent_until: dict[int, int]

    @property
    def hosts(self) -> list[RecoveryHost]:
        """Return the hosts that are up."""
        ...

    def leads(self, host: RecoveryHost) -> bool:
        """Return whether a host coordinates, as far as it knows."""
        ...

    def crash(self, node: NodeId, *, is_power: bool) -> None:
        """End a node."""
        ...

    def start(self, node: NodeId) -> None:
        """Start a node that is down."""
        ...

    def reached(self, what: str) -> None:
        """Count a named event."""
        ...

    def may_lose_disk(self, node: NodeId) -> bool:
        """Return whether a node's disk has nothing that no other disk has."""
        ...

    def stall(self, node: NodeId, span_ns: int) -> None:
        """Let a node's disk write nothing for a while."""
        ...

    def wait(self, span_ns: int) -> None:
        """Let time pass, checking everything now and then."""
        ...
