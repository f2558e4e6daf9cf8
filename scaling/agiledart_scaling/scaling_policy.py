"""Contract of a scaling policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """Decision of a policy for one stage.

    Attributes:
        wanted: instances, within the limits; the present number: no change.
        why: reason in a few words, for people.
        terms: figures behind the decision, by name; `f` is the health score.
        memory: value that the policy gets back at its next decision; it keeps nothing itself.
    """

    wanted: int
    why: str
    terms: Mapping[str, float] = field(default_factory=dict)
    memory: object = None


@runtime_checkable
class ScalingPolicy(Protocol):
    """Rule that says how many instances a stage should have. Pure: the same arguments give the same decision."""

    def decide(self, measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        """Return the decision for the interval that has just ended.

        Called once for every interval that counts: not for one in which the stage was changed or restored.

        Args:
            measures: of this interval.
            limits: of the stage.
            memory: from the previous decision; None for the first one, and after the stage got another policy.
        """
        ...
