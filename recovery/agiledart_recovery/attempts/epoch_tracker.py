"""What the parties of one life have prepared, and which epoch is complete.

An epoch e is complete when each party of the plan has answered in this life: PREPARED(ℓ, e), or it has ended and the last barrier
that it passed is below e. All that passed the barrier must name the same plan behind it. An epoch that never is complete is passed
over: its rows belong to the next one.

A change whose stage has ended, while other sources go on, can't be committed: nobody handed over.

The awkward case: a party that ended after barrier 5 is prepared for 6, 7 … by its last snapshot, never for 5 or 4, whose elements
it made in passing: else a restored source skips the rows between.
"""

from dataclasses import dataclass

from agiledart_recovery.limits import MAX_OPEN_EPOCHS
from agiledart_recovery.wire.messages import Prepared
from agiledart_recovery.wire.names import InstanceId
from agiledart_recovery.wire.register_value import Assignment, Plan


@dataclass(frozen=True, slots=True)
class CompleteEpoch:
    """An epoch for which everybody has answered; `plan` holds behind it."""

    epoch: int
    answers: dict[InstanceId, Prepared]
    plan: Plan
    is_last: bool


class EpochTracker:
    """Answers of one life, above the committed epoch.

    Attributes:
        begun: the highest epoch that anybody in this life was asked for.
        dead_end: why an epoch that all have prepared can't be committed, if there is one.
    """

    def __init__(self, attempt: int, plan: Plan, committed: int) -> None:
        self.attempt, self.plan, self.committed = attempt, plan, committed
        self.begun = committed
        self.is_caught_up = False
        self.dead_end = ""
        self._prepared: dict[int, dict[InstanceId, Prepared]] = {}
        self._ended: dict[InstanceId, Prepared] = {}

    def take(self, answer: Prepared, instances: dict[InstanceId, Assignment]) -> bool:
        """An answer came; false when it is of another life, of a party that is none, or of an epoch that is settled."""
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
        """What a party has for an epoch, if anything."""
        found = self._prepared.get(epoch, {}).get(instance)
        ended = self._ended.get(instance)
        return found or (ended if ended is not None and ended.epoch < epoch else None)

    def missing(self, epoch: int) -> tuple[Assignment, ...]:
        """Parties that have not answered for an epoch."""
        return tuple(each for each in self.plan.assignments if self.answer(each.instance, epoch) is None)

    def complete(self) -> CompleteEpoch | None:
        """The highest epoch that can be committed; the end of a bounded run is one, too."""
        instances = [each.instance for each in self.plan.assignments]
        if instances and all(instance in self._ended for instance in instances):
            return CompleteEpoch(self.begun + 1, dict(self._ended), self.plan, True)
        for epoch in sorted(self._prepared, reverse=True):
            answers = {
                instance: answer for instance in instances if (answer := self.answer(instance, epoch)) is not None
            }
            if len(answers) == len(instances):
                passed = [each for each in answers.values() if not each.has_ended]
                plans = {each.after.digest if each.after is not None else b"": each.after for each in passed}
                after = next(iter(plans.values())) if len(plans) == 1 else None
                if after is not None and (stage := self.ended_stage(after)):
                    self.dead_end = f"{stage} ended before the barrier of its change came"
                elif len(plans) == 1:
                    return CompleteEpoch(epoch, answers, after or self.plan, False)
        return None

    def ended_stage(self, after: Plan) -> str:
        """A stage that is to take a new term, and has come to its end: it will never pass the barrier."""
        for change in after.changes:
            if all(each.instance in self._ended for each in self.plan.stage(change.stage)):
                return change.stage
        return ""

    def finalise(self, done: CompleteEpoch) -> None:
        """The register has it: answers up to there are of no more use."""
        self.committed, self.plan = done.epoch, done.plan
        self.begun = max(self.begun, done.epoch)
        self.is_caught_up = all(each.is_caught_up for each in done.answers.values())
        self._prepared = {epoch: each for epoch, each in self._prepared.items() if epoch > done.epoch}
