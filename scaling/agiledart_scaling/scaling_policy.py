"""The contract of a scaling policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures


@dataclass(frozen=True, slots=True)
class ScalingDecision:
    """What a policy wants for one stage.

    Attributes:
        wanted: instances, within the limits; today's number: nothing is to be done.
        why: in a few words, for people.
        terms: figures that it was made of, by name; `f` is the health score.
        memory: what the policy wants to be told next time; it keeps nothing itself.
    """

    wanted: int
    why: str
    terms: Mapping[str, float] = field(default_factory=dict)
    memory: object = None


class ScalingPolicy(Protocol):
    """Says how many instances a stage should have. Pure: the same arguments give the same decision."""

    def decide(self, measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        """The decision for the interval that has just ended.

        Asked once for every interval that counts: not for one in which the stage was changed or restored.

        Args:
            measures: of this interval.
            limits: of the stage.
            memory: of the decision before; None for the first one, and when the stage was given another policy.
        """
        ...
