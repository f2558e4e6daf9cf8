"""A hand-over: what the instances of a term that ends leave to those of the next one, key group by key group.

All instances of a term stop at one frontier, at the barrier that carries the change. What each of them leaves behind lies in its
snapshot at that barrier, or is taken out of it where it stands when both are in one process. A new instance takes its groups, with
their timers and the rows that wait for them, out of what all the owners before leave; where its channels stand and which of them
have ended is the same in each. Counts go to one *heir* each. Nothing here knows who sent what to whom, or when.
Source: scaling specification, section 8, steps 5 and 6.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.partitioning import ROUND_ROBIN_BITS, KeyRouter
from agiledart_dataflow.data.position import START, Position
from agiledart_dataflow.plan.predecessors import predecessors_of, successor_of
from agiledart_dataflow.plan.stage_plan import Edge, Stage
from agiledart_dataflow.runtime.outbox import GONE, or_nothing
from agiledart_dataflow.runtime.program import Program
from agiledart_dataflow.state.key_groups import OperatorState, StateSnapshot
from agiledart_dataflow.state.move_group import move_group
from agiledart_kernel.errors import RollBackNeeded
from agiledart_kernel.limits import KEY_GROUPS


class ChangeFailed(RollBackNeeded):
    """A change of a stage cannot go on as it was asked for: only a roll-back helps. The text says why."""


class SnapshotParts(NamedTuple):
    """What an instance of a term that has ended leaves behind.

    Attributes:
        which: index that it had within its term.
        entered: what waited to enter it, and where its inputs stood: the snapshot of its inbox.
        state: its operator's; still in it where both instances are in one process.
        sent: what it sent, by channel, and the mark that it gave last.
        mark: up to where it is complete, as all of its term.
        counts: of its steps, in the order in which rows pass them.
    """

    which: int
    entered: Any
    state: OperatorState | StateSnapshot
    sent: tuple[Position, list[int], list[tuple[int, int, int]]]
    watermark: Position
    counts: list[StepCounts]


class Successor:
    """A new instance that waits until all those have left from whom it takes something.

    Args:
        before, after: the stage in its two terms.
        index: of the instance, within the next one.
        begin: called once, with what they left.
    """

    def __init__(self, before: Stage, after: Stage, index: int, begin: Callable[[list[SnapshotParts]], None]) -> None:
        self.needs = predecessors_of(before, after, index)
        self._begin = begin
        self._left: dict[int, SnapshotParts] = {}
        self.has_begun = False

    def misses(self, which: int) -> bool:
        """Is what this instance of the term before leaves needed, and not here yet?"""
        return not self.has_begun and which in self.needs and which not in self._left

    def hand(self, left: SnapshotParts) -> bool:
        """What one of them left; another one's, or the same again, changes nothing. True when the instance begins with it."""
        if not self.misses(left.which):
            return False
        self._left[left.which] = left
        if len(self._left) < len(self.needs):
            return False
        self.has_begun, given, self._left = True, self._left, {}
        self._begin([given[which] for which in self.needs])
        return True


class GenerationHandover:
    """What one instance of the next term takes over.

    Args:
        program: with the plan of the next term.
        stage, index: the instance.
        left: what all those left that have something for it.

    Raises:
        ChangeFailed: they do not stand at one frontier.
    """

    def __init__(self, program: Program, stage: int, index: int, left: Sequence[SnapshotParts]) -> None:
        self._program, self._plan = program, program.plan
        self._stage, self._index = self._plan.stages[stage], index
        self._left = sorted(left, key=lambda one: one.which)
        self._edges = {edge.index: edge for edge in self._plan.incoming(stage)}
        if len(frozenset((one.watermark, one.sent[0]) for one in left)) > 1:
            raise ChangeFailed(f"the instances of {self._stage.name} do not stand at one frontier")

    @property
    def watermark(self) -> Position:
        """Up to where the term before was complete."""
        return self._left[0].watermark

    @property
    def sent_watermark(self) -> Position:
        """What it has told downstream."""
        return self._left[0].sent[0]

    def predecessors(self) -> list[SnapshotParts]:
        """Those whose heir the instance is."""
        return [one for one in self._left if successor_of(one.which, self._stage) == self._index]

    def state_into(self, state: OperatorState) -> None:
        """Put the groups of the instance into its operator's state, and what belongs to no key."""
        for one in self._left:
            if isinstance(one.state, StateSnapshot):
                for group, data in one.state.groups:
                    if self._owns(group):
                        state.restore_group(group, data)
            elif one.state is not state:  # else it was built here beforehand
                for group in one.state.groups():
                    if self._owns(group):
                        move_group(one.state, state, group)
        first = self._left[0].state
        state.restore_rest(first.rest if isinstance(first, StateSnapshot) else first.snapshot_rest())

    def _owns(self, group: int) -> bool:
        owners = self._stage.owners
        return not owners or owners[group] == self._index

    def merge(self) -> Any:
        """What a `Merge` is restored from: inputs at the marks that they had given, with the rows of its groups."""
        queues = self._queues()
        here, ended = self._inputs()
        inputs: list[Any] = [
            (*channel, watermark, 0, 0, *_queue(queues.pop(channel, None))) for channel, watermark in here.items()
        ]
        inputs += [(*channel, START, 0, 0, *_queue(queue)) for channel, queue in queues.items()]
        kept = dict.fromkeys(self._edges, 0)
        for edge, *_, waiting, _ in inputs:
            kept[edge] += sum(len(rows) for rows, _, _ in waiting)
        inputs += [(edge, GONE, START, 0, rows, [], []) for edge, rows in self._gone(4, kept).items()]
        complete = self._left[0].entered[4][1]
        frontier = self._left[0].entered[3]
        return inputs, [], [], frontier, ([(complete, one in ended) for one in here], complete)

    def arrivals(self) -> Any:
        """What `Arrivals` are restored from."""
        here, ended = self._inputs()
        inputs: list[Any] = [(*channel, watermark, 0, 0, 0, []) for channel, watermark in here.items()]
        inputs += [(edge, GONE, START, 0, 0, rows, []) for edge, rows in self._gone(5, {}).items()]
        _, _, frontier, (_, complete) = self._left[0].entered
        return inputs, [], frontier, ([(complete, one in ended) for one in here], complete)

    def _inputs(self) -> tuple[dict[tuple[int, int], Position], list[tuple[int, int]]]:
        """Where each channel stands, and which have ended. One from a stage that took a new term at the same barrier stands where
        that stage stopped.
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
                else [one for one in watermarks if self._continues_channel(one, channel)]
            )
            here[channel] = max((watermarks[one] for one in before), default=START)
            if before and all(one in over for one in before):
                ended.append(channel)
        return here, ended

    def _continues_channel(self, before: tuple[int, int], channel: tuple[int, int]) -> bool:
        return before[0] == channel[0] and channel[1] in self._plan.followers(*before)

    def _queues(self) -> dict[tuple[int, int], tuple[list[Any], list[Position], Position]]:
        """Rows that wait for groups of this instance, by channel, in order; those of one channel may have waited at several."""
        found: dict[tuple[int, int], list[tuple[Position, Any, Position]]] = {}
        for number, one in enumerate(self._left):
            for edge, source, _, _, _, waiting, _ in one.entered[0]:
                is_mine = self._is_mine(self._edges[edge])
                if waiting and not (number and self._edges[edge].partitioning == "broadcast"):
                    found.setdefault((edge, source), []).extend(
                        (position, row, watermark)
                        for rows, order, watermark in waiting
                        for row, position in zip(rows, order, strict=True)
                        if is_mine(row, position)
                    )
        queues: dict[tuple[int, int], tuple[list[Any], list[Position], Position]] = {}
        for channel, rows in found.items():
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
            return lambda row, position: owners[position[3] >> ROUND_ROBIN_BITS & KEY_GROUPS - 1] == index
        return lambda row, position: True

    def _gone(self, place: int, kept: dict[int, int]) -> dict[int, int]:
        """By edge, rows that came to those that it inherits from and did not wait, and those that wait here now."""
        gone = dict.fromkeys(self._edges, 0)
        for one in self.predecessors():
            for entry in one.entered[0]:
                gone[entry[0]] += entry[place] - (sum(len(rows) for rows, _, _ in entry[5]) if kept else 0)
        return {edge: rows + kept.get(edge, 0) for edge, rows in gone.items() if rows + kept.get(edge, 0)}


def _queue(queue: tuple[list[Any], list[Position], Position] | None) -> tuple[list[Any], list[int]]:
    """Batches that wait, and how many came joined in each."""
    return ([], []) if queue is None else ([queue], [0])


def has_ended_channels(entered: Any, inputs: Iterable[tuple[int, int]]) -> bool:
    """Do rows wait in channels of terms that have ended?"""
    known = frozenset(inputs)
    return any((edge, source) not in known and source != GONE for edge, source, *_ in entered[0])
