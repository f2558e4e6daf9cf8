"""Ledger of recovery and changes, checked from above: V1 to V9, S1 to S3, S5 and S6 of the invariants.

The ledger receives every value that a quorum of voters acknowledged, and reads all disks. It knows what a run without failures
would have committed: the rows of both sources in order of position, counted by each stage, for each group, from 1 on. That
covers S1 and S2, too: a group with two owners, or with none for a moment, counts a row twice or not at all.

Where a state of the last epoch is lost, a run may roll back to the previous one. Then exactly the rows of the epochs between
are committed once more, exactly alike, and none is left out: the next commit continues behind the epoch that the run rolled
back to.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.attempts.participant import Phase
from agiledart_recovery.limits import ATTEMPTS_PER_CONFIGURATION
from agiledart_recovery.wire.names import INITIAL_CHECKPOINT, CheckpointId, InstanceId, RunId, Stamp
from agiledart_recovery.wire.register_value import (
    ChangeOutcome,
    InstanceRole,
    InstanceSnapshot,
    Plan,
    RegisterValue,
    RunState,
)
from agiledart_simulation.pipeline.disk import Disk
from agiledart_simulation.pipeline.pipeline_messages import PipelineRow, source_state
from agiledart_simulation.pipeline.recovery_host import RecoveryHost
from agiledart_simulation.pipeline.tables import (
    JOINED_INDEX,
    OTHERS,
    counting_stages,
    group_of,
    joins,
    other_side,
    tables_of,
)

MAX_IDLE_EPOCHS = 6
"""Epochs in a row that may save the same positions of sources: rows that wait for credit still pass after the last read."""


@dataclass
class CommittedProgress:
    """Progress of committed rows in the sequence that a run without failures commits.

    Attributes:
        place: number of its rows so far.
    """

    place: int = 0
    last: tuple[int, int] = (-1, 0)
    numbers: dict[int, int] = field(default_factory=dict)
    counted: dict[tuple[str, int], int] = field(default_factory=dict)
    broadcast_counts: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def copy(self) -> "CommittedProgress":
        """Return a copy that continues from here."""
        return replace(
            self, numbers=dict(self.numbers), counted=dict(self.counted), broadcast_counts=dict(self.broadcast_counts)
        )

    def follow(self, row: PipelineRow, plan: Plan) -> str:
        """Take the next committed row. Return what is wrong with it; empty: nothing."""
        tables, source = tables_of(plan), row.at[1]
        stages = next(
            counting_stages(plan, assignment.instance.stage)
            for assignment in plan.of(InstanceRole.SOURCE)
            if assignment.instance.index == source
        )
        groups = [(stage, group_of(stage, row)) for stage in stages]
        self.counted |= {group: self.counted.get(group, 0) + 1 for group in groups}
        sides = {stage: (stage, other_side(plan, tables, stage, row)) for stage, _ in groups}
        if source == JOINED_INDEX:
            self.broadcast_counts |= {side: self.broadcast_counts.get(side, 0) + 1 for side in sides.values()}
        broadcast_count = {
            stage: self.broadcast_counts.get(side, 0) if joins(plan, stage) else 0 for stage, side in sides.items()
        }
        self.place += 1
        if row.at <= self.last or [*row.counts] != [
            self.counted[group] + OTHERS * broadcast_count[group[0]] for group in groups
        ]:
            return f"committed row {self.place} is {row.at} with counts {row.counts}, after {self.last}"
        if row.number != self.numbers.get(source, 0):
            return f"row {row.number} of source {source} is committed, {self.numbers.get(source, 0)} is missing"
        self.numbers[source], self.last = row.number + 1, row.at
        return ""


class RecoveryLedger:
    """Acknowledged values, and rows that readers have seen.

    Attributes:
        destroyed: snapshots that the scenario has destroyed, wherever they were.
    """

    def __init__(self, disks: Mapping[NodeId, Disk]) -> None:
        self._disks = disks
        self.destroyed: dict[tuple[InstanceId, CheckpointId], None] = {}
        self.acknowledged: dict[Stamp, RegisterValue] = {}
        self.violations: dict[str, None] = {}
        self._attempts: dict[NodeId, tuple[int, int]] = {}
        self._seen: dict[NodeId, list[PipelineRow]] = {}
        self._newest = Stamp()
        self._idle_epochs = 0
        self._is_regained = False

    @property
    def newest(self) -> RegisterValue | None:
        """The acknowledged value of the highest stamp."""
        return self.acknowledged.get(self._newest)

    def complain(self, line: str) -> None:
        """Report a violation."""
        if len(self.violations) < 50:
            self.violations[line] = None

    # ---- what the register says

    def check_idle(self, before: RegisterValue | None, value: RegisterValue) -> None:
        """Check that a run that saves less writes no epoch after the other while its sources read nothing."""
        if before is None or not value.saves_less or value.committed == before.committed:
            return
        positions = [
            {saved.instance: saved.position for saved in known.saved if saved.position} for known in (before, value)
        ]
        is_same = positions[0] == positions[1] and value.attempt == before.attempt and value.state is RunState.RUNNING
        self._idle_epochs = self._idle_epochs + 1 if is_same else 0
        if self._idle_epochs > MAX_IDLE_EPOCHS:
            self.complain(f"V9: {_describe(value)} is the {self._idle_epochs}. epoch in a row without a row")

    def on_acknowledged(self, stamp: Stamp, value: RegisterValue) -> None:
        """Check a value that a quorum has: it is on one line with all others (V1, V5), and what it commits is there (V2)."""
        newest = self.newest
        if newest is not None and value.quorum_generation != newest.quorum_generation:
            if value.quorum_generation < newest.quorum_generation:
                if stamp > self._newest:
                    self.complain(
                        f"V1: {_describe(value)} is of generation {value.quorum_generation}, after {newest.quorum_generation}"
                    )
                return  # the sender is one of the voters that were given up for lost
            self._begin_generation(value)
        known = self.acknowledged.setdefault(stamp, value)
        if known != value:
            self.complain(f"V1: two values under {_short(stamp)}")
        for other, before in self.acknowledged.items():
            first, second = (before, value) if other < stamp else (value, before)
            if other != stamp:
                self._on_one_line(first, second)
        if stamp > self._newest:
            self._newest = stamp
        # A sleeping coordinator learns late that a value was acknowledged; state that only that value needed may be gone by
        # then.
        if known is value and stamp == self._newest:
            self._check_durable(value)
            running_changes = [change for change in value.changes if change.fate is ChangeOutcome.RUNNING]
            if len({change.stage for change in running_changes}) < len(running_changes):
                self.complain(f"S3: {_describe(value)} has two running changes of one stage")

    def _begin_generation(self, value: RegisterValue) -> None:
        """Drop what only lost voters had acknowledged: its rows come again, also for readers that have seen them."""
        ends = {end.host: end.offset for end in value.parts}
        self.acknowledged = {
            at: acknowledged_value
            for at, acknowledged_value in self.acknowledged.items()
            if acknowledged_value.committed <= value.committed
            and (
                acknowledged_value.attempt <= value.committed.attempt or acknowledged_value.committed == value.committed
            )
        }
        self._seen = {node: rows[: ends.get(node, 0)] for node, rows in self._seen.items()}
        self._is_regained = True

    def _on_one_line(self, first: RegisterValue, second: RegisterValue) -> None:
        if (second.attempt, second.committed.epoch) < (
            first.attempt,
            first.committed.epoch,
        ) or second.attempt < first.attempt:
            self.complain(f"V1: {_describe(second)} after {_describe(first)}")
        elif second.committed.epoch < first.committed.epoch or second.committed.attempt < first.committed.attempt:
            self.complain(f"V1: the committed epoch fell from {_describe(first)} to {_describe(second)}")
        elif second.committed.epoch == first.committed.epoch and second.committed != first.committed:
            self.complain(f"V1: epoch {first.committed.epoch} is committed in two attempts")
        elif second.committed == first.committed and second.parts != first.parts:
            self.complain(f"V1: ends of {_describe(first)} changed without a commit")
        elif second.committed == first.committed and second.rolled_back_to not in (
            None,
            first.rolled_back_to,
            first.fallback_checkpoint,
        ):
            self.complain(
                f"V1: {_describe(second)} continues from {second.rolled_back_to}, which is not the previous epoch"
            )
        if second.attempt > first.attempt and second.committed == first.committed:
            instances = [[assignment.instance for assignment in value.plan.assignments] for value in (first, second)]
            if instances[0] != instances[1] or first.plan.body != second.plan.body:
                self.complain(f"S5: {_describe(second)} runs another plan than {_describe(first)} had committed")
        if second.committed != first.committed and second.committed.attempt < first.attempt:
            self.complain(
                f"V5: {_describe(second)} commits attempt {second.committed.attempt} after attempt {first.attempt} began"
            )

    def _check_durable(self, value: RegisterValue) -> None:
        for end in value.parts:
            rows = len(self._disks[end.host].part.rows)
            if rows < end.offset:
                self.complain(f"V2: {_describe(value)}: {end.offset} rows are committed, {rows} are on the sink's disk")
        generations = {
            assignment.instance.stage: assignment.instance.generation for assignment in value.plan.assignments
        }
        for saved in value.saved:
            if saved.instance.generation > generations[saved.instance.stage]:
                self.complain(f"S5: {_describe(value)} has the state of {saved.instance}, its plan an older generation")
        if value.state is RunState.RUNNING:
            self._check_snapshots(value, "V2")

    def _check_snapshots(self, value: RegisterValue, rule: str) -> None:
        for (instance, checkpoint), snapshot in value.needed.items():
            local = any((instance, checkpoint) in self._disks[node].snapshots for node in value.plan.hosts)
            is_left = local or bool(snapshot.content) or self.fragments(value.run, instance, snapshot) >= snapshot.m
            if not is_left and (instance, checkpoint) not in self.destroyed:
                self.complain(
                    f"{rule}: {_describe(value)} needs {instance} of {checkpoint}, of which too few fragments are left"
                )

    def fragments(self, run: RunId, instance: InstanceId, snapshot: InstanceSnapshot) -> int:
        """Return how many fragments of a snapshot are on the disks of its replica nodes."""
        stored = 0
        for index, replica_node in enumerate(snapshot.replica_nodes):
            disk = self._disks.get(replica_node)
            keys = disk.fragments if disk is not None else {}
            stored += any(
                (key.run, key.instance, key.checkpoint, key.index) == (run, instance, snapshot.checkpoint, index)
                for key in keys
            )
        return stored

    # ---- what can be seen at any time

    def check(self, hosts: Iterable[RecoveryHost]) -> None:
        """Check V3, V4, V6 and V7 now, and the machines' own invariants."""
        value = self.newest
        if value is not None:
            self._check_rows(value)
            if value.state is RunState.RUNNING:
                self._check_snapshots(value, "V6")
            self._check_logs(value)
        for node, disk in self._disks.items():
            self._check_attempt(node, disk)
        for host in hosts:
            for line in host.machine.violations():
                self.complain(f"machine: {line}")
            engine = host.engine
            for part in host.machine.participants.values():
                is_in = part.phase in (Phase.READY, Phase.RUNNING)
                if is_in and engine is not None and engine.attempt != part.attempt:
                    self.complain(f"V5: {host.me.name} entered attempt {part.attempt} and runs {engine.attempt}")

    def _check_attempt(self, node: NodeId, disk: Disk) -> None:
        for attempt in disk.attempts.values():
            wipes, before = self._attempts.get(node, (0, 0))
            if wipes == disk.wipes and attempt.attempt < before:
                self.complain(f"V4: {node.short} was in attempt {before} and is in {attempt.attempt}")
            self._attempts[node] = disk.wipes, attempt.attempt

    def _check_logs(self, value: RegisterValue) -> None:
        if self._is_regained:
            return  # an epoch that was lost with the voters cut it
        # Where the run may roll back, sources are read again from the epoch before the committed one.
        saved_states = (*value.saved, *(value.before if value.fallback_checkpoint is not None else ()))
        positions: dict[InstanceId, int] = {}
        for saved in saved_states:
            position = source_state(saved.position).position
            positions[saved.instance] = min(position, positions.get(saved.instance, position))
        for node, disk in self._disks.items():
            for instance, log in disk.logs.items():
                if log.trimmed > positions.get(instance, 0):
                    self.complain(
                        f"V7: {node.short} cut the log of {instance} at {log.trimmed}, {positions} is committed"
                    )

    def committed_rows(self) -> list[PipelineRow]:
        """Return the committed rows of all parts, in order of the epochs."""
        return [row for _, _, rows in self.commits() for row in rows]

    def commits(self) -> Iterator[tuple[CheckpointId, RegisterValue, list[PipelineRow]]]:
        """Return commits in order: (the epoch from which it continued, the value, the rows that it added to all parts)."""
        done: dict[NodeId, int] = {}
        epoch, begun = 0, INITIAL_CHECKPOINT
        for stamp in sorted(self.acknowledged):
            value = self.acknowledged[stamp]
            if value.committed.epoch > epoch:
                epoch, rows = value.committed.epoch, []
                for end in value.parts:
                    before = done.get(end.host, 0)
                    rows += self._disks[end.host].part.rows[before : end.offset]
                    done[end.host] = max(before, end.offset)
                yield begun, value, rows
            begun = value.at

    def courses(self) -> tuple[dict[CheckpointId, CommittedProgress], int]:
        """Return the progress of each epoch, and how many rows were committed twice."""
        progress, repeated, last = {INITIAL_CHECKPOINT: CommittedProgress()}, 0, INITIAL_CHECKPOINT
        for begun, value, rows in self.commits():
            course = progress[begun].copy
            repeated += progress[last].place - course.place
            last = value.committed
            for row in rows:
                if fault := course.follow(row, value.plan) or self._differs_from_log(row):
                    self.complain(f"V3: {fault}")
                    return progress, repeated
            progress[last] = course
        return progress, repeated

    def _differs_from_log(self, row: PipelineRow) -> str:
        source = row.at[1]
        for disk in self._disks.values():
            for instance, log in disk.logs.items():
                if instance.index == source and (
                    row.number >= len(log.rows)
                    or (log.rows[row.number].at, log.rows[row.number].salt) != (row.at, row.salt)
                ):
                    return f"committed row {row.number} of source {source} is not what its log says"
        return ""

    def _check_rows(self, value: RegisterValue) -> None:
        self.courses()
        self._check_readers(value)

    def _check_readers(self, value: RegisterValue) -> None:
        ends = {end.host: end.offset for end in value.parts}
        for node, disk in self._disks.items():
            part = disk.part
            if any(
                attempt.attempt // ATTEMPTS_PER_CONFIGURATION < value.configuration
                for attempt in disk.attempts.values()
            ):
                continue  # given up for lost, and not back yet
            visible = part.rows[: part.committed]
            if part.committed > ends.get(node, 0):
                self.complain(f"V3: {node.short} emitted {part.committed} rows, {ends.get(node, 0)} are committed")
            seen = self._seen.get(node, [])
            if visible[: len(seen)] != seen[: len(visible)]:
                self.complain(f"V3: a reader of {node.short} saw other rows before")
            if len(visible) > len(seen):
                self._seen[node] = visible

    def check_left(self, hosts: Iterable[RecoveryHost]) -> None:
        """Check S6: no instance waits for a change that will not come."""
        for host in hosts:
            for waiting in host.engine.waiting.values() if host.engine is not None else ():
                self.complain(f"S6: {host.me.name} still keeps {', '.join(map(str, waiting.instances)) or 'a plan'}")

    def check_configuration(self, hosts: Iterable[RecoveryHost]) -> None:
        """Check R2: an excluded voter that came back has left the run."""
        newest = self.newest.quorum_generation if self.newest is not None else 0
        for host in hosts:
            known = [
                coordinator.known
                for coordinator in host.machine.coordinators.values()
                if coordinator.leads and coordinator.known is not None
            ]
            for value in known:
                if value.quorum_generation < newest:
                    self.complain(f"R2: {host.me.name} still leads generation {value.quorum_generation}")

    def check_end(self, rows: int) -> None:
        """Check L1 and V8: the run has finished, and every row that was read is committed and emitted."""
        value = self.newest
        if value is None or value.state is not RunState.FINISHED:
            self.complain(f"L1: not finished in the end: {_describe(value) if value is not None else 'no value'}")
            return
        committed = self.committed_rows()
        courses, repeated = self.courses()
        read = len(value.plan.of(InstanceRole.SOURCE)) * rows
        course = courses.get(value.committed, CommittedProgress())
        if (course.place, len(committed)) != (read, read + repeated):
            self.complain(
                f"V8: {read} rows were read, {len(committed)} are committed, {repeated} of them twice and up to {course.place}"
            )
        for end in value.parts:
            emitted = self._disks[end.host].part.committed
            if emitted != end.offset:
                self.complain(f"L1: {end.host.short} emitted {emitted} rows in the end, {end.offset} are committed")


def _short(stamp: Stamp) -> str:
    return f"ballot {stamp.ballot.round} of {stamp.ballot.node.short}, number {stamp.number}"


def _describe(value: RegisterValue) -> str:
    return f"(attempt {value.attempt}, epoch {value.committed.epoch} of attempt {value.committed.attempt})"
