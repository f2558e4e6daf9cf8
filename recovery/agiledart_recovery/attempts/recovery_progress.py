"""Progress of a recovery as the coordinator sees it: for people and metrics.

It decides only how long a host may take to enter an attempt.

| phase | meaning |
|---|---|
| plan | a loss is known, and the next attempt is being written |
| fetch | hosts that take instances over fetch the fragments of their state |
| restore | hosts start and restore their instances |
| replay | rows behind the committed epoch come again, until the first epoch of this attempt is committed |
| waiting | no next attempt can run: a node is missing |
"""

from dataclasses import dataclass, field

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.messages import AttemptProgress

_BEGINNING = Instant(0)

PHASES = ("plan", "fetch", "restore", "replay", "waiting")


@dataclass(slots=True)
class RecoveryProgress:
    """Record of a recovery, from a loss to the first epoch after it.

    Attributes:
        since: when the loss was seen; None: nothing is being recovered.
        reason: what happened; `waits_for`: the missing nodes.
        restarts: attempts that this recovery has begun.
        entered: when `phase` began.
        hosts: how far each host says that it is.
        took: phase → nanoseconds, so far.
        epoch_ns: from BEGIN to the commit of the last epoch; `committed_at`: when that was.
        pause_ns: the longest time for which rows of an instance had to wait for the last epoch.
    """

    since: Instant | None = None
    reason: str = ""
    waits_for: tuple[NodeId, ...] = ()
    restarts: int = 0
    phase: str = ""
    hosts: dict[NodeId, AttemptProgress] = field(default_factory=dict)
    took: dict[str, int] = field(default_factory=dict)
    epoch_ns: int = 0
    pause_ns: int = 0
    committed_at: Instant | None = None
    entered: Instant = _BEGINNING

    def enter(self, phase: str, now: Instant, reason: str = "") -> None:
        """Enter a phase; with a reason, begin a recovery unless one is under way."""
        if phase == self.phase:
            return
        if self.since is None:
            if not reason:
                return
            self.since, self.reason, self.restarts, self.took = now, reason, 0, {}
        elif self.phase:
            self.took[self.phase] = self.took.get(self.phase, 0) + now - self.entered
        self.phase, self.entered = phase, now
        if phase != "waiting":
            self.waits_for = ()

    def answered(self, node: NodeId, message: AttemptProgress) -> bool:
        """Record a host's progress; return whether it is farther than before."""
        known = self.hosts.get(node)
        self.hosts[node] = message
        return known is None or (known.phase, known.got, known.of) != (message.phase, message.got, message.of)

    def bytes(self) -> tuple[int, int]:
        """Return (fetched, to be fetched) in bytes, of all hosts."""
        return sum(host.got for host in self.hosts.values()), sum(host.of for host in self.hosts.values())

    def resetting(self) -> str:
        """Return the phase of hosts while they enter an attempt."""
        return "fetch" if any(host.phase == "fetch" for host in self.hosts.values()) else "restore"

    def end(self, now: Instant) -> dict[str, int]:
        """End the recovery; return nanoseconds by phase, empty when there was nothing to recover."""
        self.enter("", now)
        is_over, took = self.since is not None, self.took
        self.since, self.phase, self.reason, self.waits_for, self.hosts = None, "", "", (), {}
        return took if is_over else {}
