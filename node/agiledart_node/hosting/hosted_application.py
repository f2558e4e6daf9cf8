"""What a node holds of one application: instances that it runs, or only the duty to watch."""

from dataclasses import dataclass, field
from typing import Any

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.records.lost_rows import lines_read
from agiledart_node.wire.formation_messages import Deployed

Key = tuple[str, int]
"""(application, version)."""


@dataclass(slots=True)
class HostedApplication:
    """One application, as far as this node has to do with it.

    Attributes:
        part: the last part that came; its assignment and nodes hold for all parts.
        bundle: user code, from the first part.
        instances: (stage, index) of what runs here or is being started, to its executor slot.
        answers: answers to deployments by (scheduler, request); None while instances start.
        planned: instances that the plan gives this node; room is kept for them from the first part on.
        is_flowing: sources may read.
        is_draining: its sources here were told to end, in this life.
        is_closing: it has failed, finished or was stopped; nothing more is reported.
        reports: last figures of local instances, and in `reported_at` when they came.
        finished: those that came to the end of their input.
        seen: figures of instances elsewhere, from time to time; only at the coordinator. A dead host tells none any more.
        told: finished instances that the coordinator has acknowledged.
        collected: last reports of finished instances of all nodes; only at the coordinator.
        lines_before: how far sources were in the lives before, as far as that was heard here.
        has_register: its register has begun the first life; who dies from now on is brought back.
        has_moved: all that it ran is on other nodes now; the application goes on.
        is_committed: the run's register says that it is over, and all hosts know: it may be closed once all figures are here.
        ended_by: why the register says that it is over, where its input had not ended.
        life: of the run, as it stands in frames, to which all that was counted and has ended belongs.
        missing_looks: how often the patrol found no record; `unverified_checks`: how often a guard found it failed by hearsay.
    """

    part: DeploymentPart
    bundle: bytes = b""
    instances: dict[tuple[int, int], int] = field(default_factory=dict)
    answers: dict[tuple[NodeId, int], Deployed | None] = field(default_factory=dict)
    planned: int = 0
    is_flowing: bool = False
    is_closing: bool = False
    is_reporting: bool = False
    is_draining: bool = False
    reports: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    seen: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    reported_at: dict[tuple[int, int], Instant] = field(default_factory=dict)
    finished: dict[tuple[int, int], bool] = field(default_factory=dict)
    acknowledged: dict[tuple[int, int], bool] = field(default_factory=dict)
    collected: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    lines_before: dict[tuple[int, int], int] = field(default_factory=dict)
    has_register: bool = False
    has_moved: bool = False
    is_committed: bool = False
    ended_by: str = ""
    missing_checks: int = 0
    unverified_checks: int = 0
    attempt: int = field(init=False)

    def __post_init__(self) -> None:
        self.attempt = self.part.attempt

    def begin_again(self, instances: dict[tuple[int, int], int], attempt: int) -> None:
        """Another life of the run: what was counted and had ended belongs to the one before."""
        self.lines_before |= lines_read(figures_of(self))
        self.instances, self.attempt = instances, attempt
        self.is_flowing = self.is_reporting = self.is_draining = False
        self.reports, self.seen, self.finished, self.acknowledged, self.collected = {}, {}, {}, {}, {}
        self.reported_at = {}

    def aged_reports(self, now: Instant) -> dict[str, Any]:
        """The last figures by `stage.index`, each with its age; those of who has finished have none."""
        aged: dict[str, Any] = {}
        for copy, report in sorted(self.reports.items()):
            at = self.reported_at.get(copy)
            is_live = at is not None and copy not in self.finished
            aged[report_key(copy)] = (
                {**report, "age_ms": (now - at) // MILLISECOND} if is_live and at is not None else report
            )
        return aged

    @property
    def reserved(self) -> int:
        """Instances that run here or will, by the plan."""
        return max(len(self.instances), self.planned)

    @property
    def key(self) -> Key:
        """(application, version)."""
        return self.part.application, self.part.version

    @property
    def hosts(self) -> tuple[Peer, ...]:
        """Nodes that run an instance."""
        used = {place.node for place in self.part.assignment}
        return tuple(node for position, node in enumerate(self.part.nodes) if position in used)

    def concerns(self, node: NodeId) -> bool:
        """Whether a message of this node about the application is to be heard."""
        return node == self.part.scheduler.node or any(peer.node == node for peer in self.part.nodes)

    def host(self, node: NodeId) -> Peer | None:
        """The hosting node with this id, in the life in which it was given its part."""
        return next((peer for peer in self.hosts if peer.node == node), None)


def figures_of(hosted: HostedApplication) -> dict[tuple[int, int], dict[str, Any]]:
    """Last figures of instances: of its own, and of others as they were seen from time to time."""
    return {**hosted.seen, **hosted.reports}


def planned_for(part: DeploymentPart, node: NodeId) -> int:
    """How many instances of the plan a node runs."""
    mine = [position for position, peer in enumerate(part.nodes) if peer.node == node]
    return sum(place.node in mine for place in part.assignment)


def is_sound(part: DeploymentPart) -> bool:
    """Whether all positions in a part from the network point to something."""
    places = {(place.stage, place.index): True for place in part.assignment}
    return (
        bool(part.application)
        and part.version > 0
        and part.executors > 0
        and all(0 <= place.node < len(part.nodes) for place in part.assignment)
        and all(placed.copy in places and 0 <= placed.executor < part.executors for placed in part.instances)
    )


def report_key(copy: tuple[int, int]) -> str:
    """`stage.index`, the key of a report on the wire."""
    return f"{copy[0]}.{copy[1]}"


def report_copy(key: str) -> tuple[int, int] | None:
    """(stage, index) of a report's key; None when it is none."""
    stage, dot, index = key.partition(".")
    if dot and stage.isdecimal() and index.isdecimal() and len(key) < 16:
        return int(stage), int(index)
    return None
