"""Tracker of what the instances of one attempt have prepared, and which epoch is complete.

An epoch e is complete when each instance of the plan has answered in this attempt. An answer is PREPARED(ℓ, e), or the instance has
ended and the last barrier that it passed is below e. All that passed the barrier must name the same plan behind it. An epoch that
is never complete is aborted: its rows belong to the next one.

A change whose stage has ended, while other sources continue, cannot be committed: no old instance handed its state over.

The awkward case: an instance that ended after barrier 5 is prepared for 6, 7 … by its last snapshot, but not for 5 or 4. Its
snapshots of those barriers are earlier; with the last one a restored source would skip the rows between.
"""

from dataclasses import dataclass

from agiledart_recovery.limits import MAX_OPEN_EPOCHS
from agiledart_recovery.wire.messages import Prepared
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, Plan


@dataclass(frozen=True, slots=True)
class CompleteEpoch:
    """Epoch for which all instances have answered; `plan` is valid behind it."""

    epoch: int
    answers: dict[InstanceId, Prepared]
    plan: Plan
    is_last: bool


class EpochTracker:
    """Answers of one attempt, above the committed epoch.

    Attributes:
        begun: the highest epoch that any node of this attempt was asked for.
        dead_end: why an epoch that all have prepared cannot be committed, if there is one.
    """

    def __init__(self, attempt: int, plan: Plan, committed: int) -> None:
        self.attempt, self.plan, self.committed = attempt, plan, committed
        self.begun = committed
        self.is_caught_up = False
        self.dead_end = ""
        self._prepared: dict[int, dict[InstanceId, Prepared]] = {}
        self._ended: dict[InstanceId, Prepared] = {}

    def take(self, answer: Prepared, instances: dict[InstanceId, Assignment]) -> bool:
        """Take an answer; return false when it belongs to another attempt, an unknown instance, or an epoch that is decided."""
        if (
            answer.attempt != self.attempt
            or answer.instance not in instances
            or answer.saved.instance != answer.instance
        ):
            return False
        if answer.has_ended:
            self._ended[answer.instance] = answer
            return True
        if not self.committed < answer.epoch <= self.begun + MAX_OPEN_EPOCHS:
            return False
        self.begun = max(self.begun, answer.epoch)
        self._prepared.setdefault(answer.epoch, {})[answer.instance] = answer
        return True

    def answer(self, instance: InstanceId, epoch: int) -> Prepared | None:
        """Return an instance's answer for an epoch, if it has one."""
        prepared = self._prepared.get(epoch, {}).get(instance)
        ended = self._ended.get(instance)
        return prepared or (ended if ended is not None and ended.epoch < epoch else None)

    def missing(self, epoch: int) -> tuple[Assignment, ...]:
        """Return the instances that have not answered for an epoch."""
        return tuple(
            assignment for assignment in self.plan.assignments if self.answer(assignment.instance, epoch) is None
        )

    def complete(self) -> CompleteEpoch | None:
        """Return the highest epoch that can be committed. The end of a bounded run is an epoch, too."""
        instances = [assignment.instance for assignment in self.plan.assignments]
        if instances and all(instance in self._ended for instance in instances):
            return CompleteEpoch(self.begun + 1, dict(self._ended), self.plan, True)
        for epoch in sorted(self._prepared, reverse=True):
            answers = {
                instance: answer for instance in instances if (answer := self.answer(instance, epoch)) is not None
            }
            if len(answers) == len(instances):
                passed = [answer for answer in answers.values() if not answer.has_ended]
                plans = {
                    passed_answer.after.digest if passed_answer.after is not None else b"": passed_answer.after
                    for passed_answer in passed
                }
                after = next(iter(plans.values())) if len(plans) == 1 else None
                if after is not None and (stage := self.ended_stage(after)):
                    self.dead_end = f"{stage} ended before the barrier of its change came"
                elif len(plans) == 1:
                    return CompleteEpoch(epoch, answers, after or self.plan, False)
        return None

    def ended_stage(self, after: Plan) -> str:
        """Return a stage that is to take a new generation but has ended, so that it never passes the barrier; empty: none."""
        for change in after.changes:
            if all(assignment.instance in self._ended for assignment in self.plan.stage(change.stage)):
                return change.stage
        return ""

    def finalise(self, done: CompleteEpoch) -> None:
        """Note that the register holds this epoch, and drop the answers up to it."""
        self.committed, self.plan = done.epoch, done.plan
        self.begun = max(self.begun, done.epoch)
        self.is_caught_up = all(answer.is_caught_up for answer in done.answers.values())
        self._prepared = {epoch: answers for epoch, answers in self._prepared.items() if epoch > done.epoch}
