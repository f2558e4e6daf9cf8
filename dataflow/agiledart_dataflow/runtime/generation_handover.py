"""Hand-over: the instances of one generation give their state to those of the next one, key group by key group.

All instances of a generation stop at one frontier, at the barrier that carries the change. Each leaves its snapshot at that
barrier, or its live state when both instances are in one process. A new instance takes its key groups, with their timers and
waiting rows, from all previous owners. The positions and ends of its channels are the same in each snapshot. Counts go to one
*successor* each. This module knows nothing about senders, receivers or times of messages.
Source: scaling specification, section 8, steps 5 and 6.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.partitioning import KeyRouter, round_robin_group
from agiledart_dataflow.data.position import START, Position
from agiledart_dataflow.plan.predecessors import predecessors_of, successor_of
from agiledart_dataflow.plan.stage_plan import Edge, Stage
from agiledart_dataflow.runtime.outbox import GONE, SentCounts, or_nothing
from agiledart_dataflow.runtime.overtaken_rows import OvertakenRows
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.state.key_groups import OperatorState, StateSnapshot
from agiledart_dataflow.state.move_group import move_group
from agiledart_kernel.errors import RollBackNeeded


class ChangeFailed(RollBackNeeded):
    """Error of a change of a stage that cannot go on as requested: only a roll-back helps. The text gives the reason."""


class SnapshotParts(NamedTuple):
    """State that an instance of an ended generation leaves.

    Attributes:
        which: index that it had within its generation.
        entered: the snapshot of its inbox: waiting rows, and the positions of its inputs.
        state: its operator's; the live state where both instances are in one process.
        sent: counts of rows sent, by channel, and the last watermark.
        watermark: position up to which it is complete, like its whole generation.
        counts: of its steps, in the order in which rows pass them.
        overtaken: rows that the barrier overtook at its outputs; none at a barrier with a change.
    """

    which: int
    entered: Any
    state: OperatorState | StateSnapshot
    sent: SentCounts
    watermark: Position
    counts: list[StepCounts]
    overtaken: Sequence[OvertakenRows] = ()


class Successor:
    """New instance that waits until all its predecessors have stopped.

    Args:
        before, after: the stage in its two generations.
        index: of the instance, within the next one.
        begin: called once, with the predecessors' snapshots.
    """

    def __init__(self, before: Stage, after: Stage, index: int, begin: Callable[[list[SnapshotParts]], None]) -> None:
        self.needs = predecessors_of(before, after, index)
        self._begin = begin
        self._left: dict[int, SnapshotParts] = {}
        self.has_begun = False

    def misses(self, which: int) -> bool:
        """Report whether the snapshot of this instance of the previous generation is needed and missing."""
        return not self.has_begun and which in self.needs and which not in self._left

    def hand(self, left: SnapshotParts) -> bool:
        """Take a predecessor's snapshot, ignoring others and duplicates. Return True when the instance begins with it."""
        if not self.misses(left.which):
            return False
        self._left[left.which] = left
        if len(self._left) < len(self.needs):
            return False
        self.has_begun, given, self._left = True, self._left, {}
        self._begin([given[which] for which in self.needs])
        return True


class GenerationHandover:
    """Part of a hand-over that one instance of the next generation takes.

    Args:
        program: with the plan of the next generation.
        stage, index: the instance.
        left: the snapshots of all predecessors that have something for it.

    Raises:
        ChangeFailed: the predecessors do not stand at one frontier.
    """

    def __init__(self, program: Program, stage: int, index: int, left: Sequence[SnapshotParts]) -> None:
        self._program, self._plan = program, program.plan
        self._stage, self._index = self._plan.stages[stage], index
        self._left = sorted(left, key=lambda parts: parts.which)
        self._edges = {edge.index: edge for edge in self._plan.incoming(stage)}
        if any(parts.overtaken for parts in left):
            raise ChangeFailed(f"an instance of {self._stage.name} has rows that the barrier of the change overtook")
        if len(frozenset((parts.watermark, parts.sent[0]) for parts in left)) > 1:
            raise ChangeFailed(f"the instances of {self._stage.name} do not stand at one frontier")

    @property
    def watermark(self) -> Position:
        """Return the position up to which the previous generation was complete."""
        return self._left[0].watermark

    @property
    def sent_watermark(self) -> Position:
        """Return the watermark that the previous generation sent downstream."""
        return self._left[0].sent[0]

    def predecessors(self) -> list[SnapshotParts]:
        """Return the predecessors whose counts this instance inherits."""
        return [parts for parts in self._left if successor_of(parts.which, self._stage) == self._index]

    def state_into(self, state: OperatorState) -> None:
        """Put the instance's key groups into its operator's state, and the state that belongs to no key."""
        for parts in self._left:
            if isinstance(parts.state, StateSnapshot):
                for group, data in parts.state.groups:
                    if self._owns(group):
                        state.restore_group(group, data)
            elif parts.state is not state:  # else the state was preloaded here
                for group in parts.state.groups():
                    if self._owns(group):
                        move_group(parts.state, state, group)
        first = self._left[0].state
        state.restore_rest(first.rest if isinstance(first, StateSnapshot) else first.snapshot_rest())

    def _owns(self, group: int) -> bool:
        owners = self._stage.owners
        return not owners or owners[group] == self._index

    def merge(self) -> Any:
        """Return a snapshot for `Merge.restore`: inputs at their last watermarks, with the rows of its key groups."""
        queues = self._queues()
        here, ended = self._inputs()
        inputs: list[Any] = [
            (*channel, watermark, 0, 0, *_queue(queues.pop(channel, None))) for channel, watermark in here.items()
        ]
        inputs += [(*channel, START, 0, 0, *_queue(queue)) for channel, queue in queues.items()]
        waiting_rows = dict.fromkeys(self._edges, 0)
        for edge, *_, waiting, _ in inputs:
            waiting_rows[edge] += sum(len(rows) for rows, _, _ in waiting)
        inputs += [(edge, GONE, START, 0, rows, [], []) for edge, rows in self._gone(4, waiting_rows).items()]
        complete = self._left[0].entered[4][1]
        frontier = self._left[0].entered[3]
        return inputs, [], [], frontier, ([(complete, channel in ended) for channel in here], complete)

    def arrivals(self) -> Any:
        """Return a snapshot for `Arrivals.restore`."""
        here, ended = self._inputs()
        inputs: list[Any] = [(*channel, watermark, 0, 0, 0, []) for channel, watermark in here.items()]
        inputs += [(edge, GONE, START, 0, 0, rows, []) for edge, rows in self._gone(5, {}).items()]
        _, _, frontier, (_, complete) = self._left[0].entered
        return inputs, [], frontier, ([(complete, channel in ended) for channel in here], complete)

    def _inputs(self) -> tuple[dict[tuple[int, int], Position], list[tuple[int, int]]]:
        """Return the position of each channel, and the channels that have ended.

        A channel from a stage that changed its generation at the same barrier stands where that stage stopped.
        """
        entered: Any = self._left[0].entered
        inputs: list[Any] = entered[0]
        alignment: list[tuple[int, bool]] = entered[-1][0]
        watermarks = {(edge, source): watermark for edge, source, watermark, *_ in inputs[: len(alignment)]}
        over = [channel for channel, (_, has_ended) in zip(watermarks, alignment, strict=True) if has_ended]
        here: dict[tuple[int, int], Position] = {}
        ended: list[tuple[int, int]] = []
        for channel in self._plan.inputs(self._stage.index, self._index):
            before = (
                [channel]
                if channel in watermarks
                else [old_channel for old_channel in watermarks if self._continues_channel(old_channel, channel)]
            )
            here[channel] = max((watermarks[old_channel] for old_channel in before), default=START)
            if before and all(old_channel in over for old_channel in before):
                ended.append(channel)
        return here, ended

    def _continues_channel(self, before: tuple[int, int], channel: tuple[int, int]) -> bool:
        return before[0] == channel[0] and channel[1] in self._plan.followers(*before)

    def _queues(self) -> dict[tuple[int, int], tuple[list[Any], list[Position], Position]]:
        """Return the waiting rows of this instance's groups, by channel, in order; several predecessors may hold rows of one
        channel.
        """
        rows_by_channel: dict[tuple[int, int], list[tuple[Position, Any, Position]]] = {}
        for number, parts in enumerate(self._left):
            for edge, source, _, _, _, waiting, _ in parts.entered[0]:
                is_mine = self._is_mine(self._edges[edge])
                if waiting and not (number and self._edges[edge].partitioning == "broadcast"):
                    rows_by_channel.setdefault((edge, source), []).extend(
                        (position, row, watermark)
                        for rows, order, watermark in waiting
                        for row, position in zip(rows, order, strict=True)
                        if is_mine(row, position)
                    )
        queues: dict[tuple[int, int], tuple[list[Any], list[Position], Position]] = {}
        for channel, rows in rows_by_channel.items():
            rows.sort(key=lambda row: row[0])
            if rows:
                queues[channel] = [row for _, row, _ in rows], [at for at, _, _ in rows], max(m for _, _, m in rows)
        return queues

    def _is_mine(self, edge: Edge) -> Callable[[Any, Position], bool]:
        owners, index = self._stage.owners, self._index
        if edge.partitioning == "key":
            _, key_of, lenient = self._program.key_functions(edge.source)[edge.index]
            router = KeyRouter(owners)
            find = or_nothing(key_of, router) if lenient else key_of
            return lambda row, position: router[find(row)] == index
        if edge.partitioning == "round_robin":
            return lambda row, position: owners[round_robin_group(position[3])] == index
        return lambda row, position: True

    def _gone(self, place: int, waiting_rows_by_edge: dict[int, int]) -> dict[int, int]:
        """Return by edge the rows that came to its predecessors and did not wait, and those that wait here now."""
        gone = dict.fromkeys(self._edges, 0)
        for parts in self.predecessors():
            for entry in parts.entered[0]:
                gone[entry[0]] += entry[place] - (
                    sum(len(rows) for rows, _, _ in entry[5]) if waiting_rows_by_edge else 0
                )
        return {
            edge: rows + waiting_rows_by_edge.get(edge, 0)
            for edge, rows in gone.items()
            if rows + waiting_rows_by_edge.get(edge, 0)
        }


def _queue(queue: tuple[list[Any], list[Position], Position] | None) -> tuple[list[Any], list[int]]:
    """Return the batches that wait, and the number of batches joined in each."""
    return ([], []) if queue is None else ([queue], [0])


def has_ended_channels(entered: Any, inputs: Iterable[tuple[int, int]]) -> bool:
    """Report whether rows wait in channels of ended generations."""
    known = frozenset(inputs)
    return any((edge, source) not in known and source != GONE for edge, source, *_ in entered[0])
