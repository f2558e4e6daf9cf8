"""How it stands with a run, as its coordinator sees it: for people, and for figures.

It decides nothing but how long a host may take to enter a life.

| phase | meaning |
|---|---|
| plan | a loss is known, and the next life is being written |
| fetch | hosts that take instances over fetch the fragments of their state |
| restore | hosts start and bring back their instances |
| replay | rows that came after the committed epoch come again, until the first epoch of this life is committed |
| waiting | the next life cannot run: somebody is missing |
"""

from dataclasses import dataclass, field

from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.messages import AttemptProgress

_BEGINNING = Instant(0)

PHASES = ("plan", "fetch", "restore", "replay", "waiting")


@dataclass(slots=True)
class RecoveryProgress:
    """What a coordinator remembers of the way from a loss to the first epoch after it.

    Attributes:
        since: when the loss was seen; None: nothing is being recovered.
        reason: what happened; `waits_for`: who is missing.
        attempt: lives that this recovery has begun.
        entered: when `phase` began.
        hosts: how far each host says that it is.
        took: phase → nanoseconds, so far.
        epoch_ns: from BEGIN to the commit of the last epoch; `committed_at`: when that was.
        pause_ns: for so long rows of an instance had to wait at once for it, at the most.
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
        """A phase begins; with a reason, a recovery, unless one is under way."""
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
        """A host says how far it is; true when that is farther than before."""
        known = self.hosts.get(node)
        self.hosts[node] = message
        return known is None or (known.phase, known.got, known.of) != (message.phase, message.got, message.of)

    def bytes(self) -> tuple[int, int]:
        """(fetched, to be fetched) by all hosts."""
        return sum(each.got for each in self.hosts.values()), sum(each.of for each in self.hosts.values())

    def resetting(self) -> str:
        """What hosts are at while a life is entered."""
        return "fetch" if any(each.phase == "fetch" for each in self.hosts.values()) else "restore"

    def end(self, now: Instant) -> dict[str, int]:
        """It is over; nanoseconds by phase, empty when there was nothing to recover."""
        self.enter("", now)
        is_over, took = self.since is not None, self.took
        self.since, self.phase, self.reason, self.waits_for, self.hosts = None, "", "", (), {}
        return took if is_over else {}
