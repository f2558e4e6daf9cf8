"""State of one application on a node: the instances that it runs, or only the duty to watch."""

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
    """One application, as far as this node takes part in it.

    Attributes:
        part: the last part received; its assignment and nodes are valid for all parts.
        bundle: user code, from the first part.
        instances: (stage, index) of instances that run here or are being started → executor slot.
        answers: answers to deployments by (scheduler, request); None while instances start.
        planned: instances that the plan gives this node; capacity is reserved for them from the first part on.
        is_flowing: sources may read.
        is_draining: its sources here were told to end, in this attempt.
        is_closing: it has failed, finished or was stopped; nothing more is reported.
        reports: last reports of local instances; `reported_at`: time of each.
        pending_calls: step and place of user code that has not returned, and since when, by the instance that cannot report.
        finished: instances that reached the end of their input.
        seen: reports of instances elsewhere, updated from time to time; only at the coordinator. A dead host sends none any more.
        acknowledged: finished instances that the coordinator has acknowledged.
        collected: last reports of finished instances of all nodes; only at the coordinator.
        lines_before: positions of the sources in earlier attempts, as far as reported here.
        has_register: its register has begun the first attempt; from now on lost instances are restarted.
        has_moved: all its instances run on other nodes now; the application continues.
        is_committed: the run's register ended it, and all hosts know: it may be closed once all reports are here.
        ended_by: why the register ended it, if not by the end of its input.
        attempt: of the run, as in frames; counts and ends here belong to it.
        missing_checks: times that the patrol found no record; `unverified_checks`: times that a guard found an unverified failure.
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
    pending_calls: dict[tuple[int, int], tuple[str, str, Instant]] = field(default_factory=dict)
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
        """Reset the state for another attempt: counts and ends belong to the previous one."""
        self.lines_before |= lines_read(figures_of(self))
        self.instances, self.attempt = instances, attempt
        self.is_flowing = self.is_reporting = self.is_draining = False
        self.reports, self.seen, self.finished, self.acknowledged, self.collected = {}, {}, {}, {}, {}
        self.reported_at, self.pending_calls = {}, {}

    def aged_reports(self, now: Instant) -> dict[str, Any]:
        """Return the last reports by `stage.index`, each with its age; those of finished instances have none."""
        aged: dict[str, Any] = {}
        for copy, report in sorted(self.reports.items()):
            at = self.reported_at.get(copy)
            is_live = at is not None and copy not in self.finished
            if not is_live or at is None:
                aged[report_key(copy)] = report
                continue
            aged[report_key(copy)] = {**report, "age_ms": (now - at) // MILLISECOND}
        for copy, (step, place, since) in sorted(self.pending_calls.items()):  # it may never have reported
            call = {"user_call": place, "user_call_step": step, "user_call_ms": (now - since) // MILLISECOND}
            aged[report_key(copy)] = {**aged.get(report_key(copy), {}), **call}
        return aged

    @property
    def reserved(self) -> int:
        """Number of instances that run here or will, by the plan."""
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
        """Return whether a node's messages about the application are accepted."""
        return node == self.part.scheduler.node or any(peer.node == node for peer in self.part.nodes)

    def host(self, node: NodeId) -> Peer | None:
        """Return the hosting node with this id, in the incarnation that received its part."""
        return next((peer for peer in self.hosts if peer.node == node), None)


def figures_of(hosted: HostedApplication) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the last reports of instances: of local ones, and of others as seen from time to time."""
    return {**hosted.seen, **hosted.reports}


def planned_for(part: DeploymentPart, node: NodeId) -> int:
    """Return the number of instances that the plan gives a node."""
    mine = [position for position, peer in enumerate(part.nodes) if peer.node == node]
    return sum(place.node in mine for place in part.assignment)


def is_sound(part: DeploymentPart) -> bool:
    """Return whether all positions in a part from the network are valid."""
    places = {(place.stage, place.index): True for place in part.assignment}
    return (
        bool(part.application)
        and part.version > 0
        and part.executors > 0
        and all(0 <= place.node < len(part.nodes) for place in part.assignment)
        and all(placed.copy in places and 0 <= placed.executor < part.executors for placed in part.instances)
    )


def report_key(copy: tuple[int, int]) -> str:
    """Return `stage.index`, the key of a report on the wire."""
    return f"{copy[0]}.{copy[1]}"


def report_copy(key: str) -> tuple[int, int] | None:
    """Return (stage, index) of a report's key; None when it is malformed."""
    stage, dot, index = key.partition(".")
    if dot and stage.isdecimal() and index.isdecimal() and len(key) < 16:
        return int(stage), int(index)
    return None
