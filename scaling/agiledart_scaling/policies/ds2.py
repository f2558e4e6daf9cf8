"""Policy DS2 as a second opinion: demand divided by the true rate of one instance, on the same measures."""

import math
from dataclasses import dataclass

from agiledart_kernel.errors import ConfigurationError
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.scaling_policy import ScalingDecision
from agiledart_scaling.score import NOTHING


@dataclass(frozen=True, slots=True)
class Ds2Settings:
    """Settings of the policy.

    Attributes:
        busy_share: ρ, the planned busy share of an instance's time.
        boundary: no change while the busy share is within this distance from it.
        catch_up_s: seconds within which a backlog must be gone; None: backlogs count for nothing, as in the paper.
        window: intervals over which the rate is averaged.
        stabilise: intervals between two changes.
    """

    busy_share: float = 0.9
    boundary: float = 0.0
    catch_up_s: float | None = None
    window: int = 1
    stabilise: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.busy_share <= 1 or self.boundary < 0 or min(self.window, self.stabilise) < 1:
            raise ConfigurationError("ds2: set 0 < busy_share ≤ 1, boundary ≥ 0, window ≥ 1 and stabilise ≥ 1.")


FLINK_SETTINGS = Ds2Settings(busy_share=0.7, boundary=0.3, catch_up_s=30.0, window=3, stabilise=3)
"""Settings of the autoscaler of Flink's operator for Kubernetes."""


@dataclass(frozen=True, slots=True)
class Ds2Memory:
    """Rates of the last intervals, and the number of intervals since the last change."""

    rates: tuple[float, ...] = ()
    since: int = 0


@dataclass(frozen=True, slots=True)
class Ds2:
    """The policy `ds2`, and `ds2-flink` with other settings.

    Source: [Kalavri et al. 2018] §3, equation 7 for one operator.
    """

    settings: Ds2Settings = Ds2Settings()

    def decide(self, measures: StageMeasures, limits: Limits, memory: object) -> ScalingDecision:
        """Return the decision; see `ScalingPolicy`."""
        s, x, rate = self.settings, measures.instances, measures.mean_rate
        known = memory if isinstance(memory, Ds2Memory) else Ds2Memory(since=s.stabilise)
        rates, since = (*known.rates, measures.offered_mean)[-s.window :], known.since + 1
        offered = sum(rates) / len(rates)
        due = offered + (measures.backlog[-1] / s.catch_up_s if s.catch_up_s else 0.0)
        busy = due / (rate * x)
        terms = {"offered": offered, "capacity": rate * x, "due": due, "busy": busy}
        if due > NOTHING:
            terms["f"] = s.busy_share / busy
        wanted = limits.clamp(math.ceil(due / (rate * s.busy_share) - 1e-9))
        if x == limits.clamp(x) and (since < s.stabilise or abs(busy - s.busy_share) <= s.boundary):
            return ScalingDecision(x, f"busy share {busy:.2f}: stable", terms, Ds2Memory(rates, since))
        since = 0 if wanted != x else since
        return ScalingDecision(
            wanted, f"busy share {busy:.2f}, wanted {s.busy_share:g}", terms, Ds2Memory(rates, since)
        )
