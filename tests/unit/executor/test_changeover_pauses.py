"""A sender's view of a change: from what the term before took last to what the new one took first."""

from dataclasses import dataclass, field

import pytest

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.plan.stage_plan import Edge, Stage, StagePlan, member
from agiledart_dataflow.runtime.channels import SendingChannel
from agiledart_executor.instances.changeover_pauses import ChangeoverPauses

OLD, NEW = member(1, 0), (member(2, 0), member(2, 1))
MS = 1_000_000


def planned(generation: int, instances: int) -> StagePlan:
    stages = (
        Stage(0, "in", "source", (0,)),
        Stage(1, "sums", "operator", (1,), instances, True, generation=generation, high=4),
    )
    return StagePlan("one", b"", stages, (Edge(0, 0, 1, "key", "int", 1),))


@dataclass
class OneEnd:
    channel: SendingChannel = field(default_factory=SendingChannel)
    is_old: bool = False


@dataclass
class Bed:
    plan: StagePlan
    now: int = 0
    changeover_pauses: ChangeoverPauses = field(init=False)
    outputs: dict[tuple[int, int], OneEnd] = field(init=False)

    def __post_init__(self) -> None:
        self.changeover_pauses = ChangeoverPauses(lambda: self.now)
        self.outputs = {(0, OLD): OneEnd(), **{(0, target): OneEnd() for target in NEW}}

    def at(self, ms: int) -> "Bed":
        self.now = ms * MS
        return self

    def send(self, target: int) -> None:
        channel = self.outputs[0, target].channel
        channel.put(Batch([1], None, (self.now + 1,)))
        while channel.next_frame() is not None:
            pass
        self.changeover_pauses.look(self.outputs)

    def acknowledge(self, target: int, frames: int) -> None:
        end = self.outputs[0, target]
        end.channel.acknowledge(frames, 0)
        self.changeover_pauses.acknowledged(0, target, end)

    def turn(self) -> None:
        channel = self.outputs[0, OLD].channel
        channel.put(Batch([], None, (self.now + 1,), 7))
        channel.next_frame()
        self.outputs[0, OLD].is_old = True
        self.changeover_pauses.plan_changed(self.plan, self.outputs, {(0, OLD): None})


@pytest.fixture
def bed() -> Bed:
    return Bed(planned(2, 2))


def test_the_pause_runs_from_the_last_old_rows_to_the_first_new_ones(bed: Bed) -> None:
    bed.at(10).send(OLD)
    bed.at(20).turn()
    for target in NEW:
        bed.at(21).send(target)
    bed.at(100).acknowledge(OLD, 2)
    bed.at(130).acknowledge(NEW[0], 1)
    assert (bed.changeover_pauses.report(), bed.changeover_pauses.watches) == ((), True), (
        "the other channel has not been heard of"
    )
    bed.at(150).acknowledge(NEW[1], 1)
    assert bed.changeover_pauses.report() == ((1, 2, 50 * MS),), (
        "the longest of its channels, since the stop and not since the barrier"
    )
    assert not bed.changeover_pauses.watches


def test_late_rows_do_not_extend_the_pause(bed: Bed) -> None:
    bed.at(20).turn()
    bed.at(500).send(NEW[0])
    bed.at(503).acknowledge(NEW[0], 1)
    bed.at(900).send(NEW[1])
    bed.at(902).acknowledge(NEW[1], 1)
    assert bed.changeover_pauses.report() == ((1, 2, 3 * MS),)


def test_pauses_reported_by_the_end_of_the_input_count(bed: Bed) -> None:
    bed.at(20).turn()
    bed.at(21).send(NEW[0])
    bed.at(60).acknowledge(NEW[0], 1)
    assert bed.changeover_pauses.report(has_ended=True) == ((1, 2, 39 * MS),)
    assert not bed.changeover_pauses.watches


def test_a_second_change_replaces_the_first(bed: Bed) -> None:
    bed.at(20).turn()
    for target in NEW:
        bed.at(20).send(target)
        bed.at(90).acknowledge(target, 1)
    (report,) = bed.changeover_pauses.report()
    assert report == (1, 2, 70 * MS)
    third = member(3, 0)
    bed.outputs = {**{(0, one): bed.outputs[0, one] for one in NEW}, (0, third): OneEnd()}
    for one in NEW:
        bed.outputs[0, one].is_old = True
    bed.at(200)
    bed.plan = planned(3, 1)
    bed.changeover_pauses.plan_changed(bed.plan, bed.outputs, {(0, one): None for one in NEW})
    bed.send(third)
    bed.at(205).acknowledge(third, 1)
    assert bed.changeover_pauses.report() == ((1, 3, 5 * MS),)
