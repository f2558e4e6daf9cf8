"""Guarded call of a user's policy: when it fails, the stage stays as it is and the reason names the policy.

A call that never returns cannot be detected here: the caller runs a user's policy in a thread that it can abandon.
"""

import math
from collections.abc import Callable, Mapping

from agiledart_kernel.instants import MILLISECOND
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.scaling_policy import ScalingDecision, ScalingPolicy

DECISION_TIMEOUT_NS = 100 * MILLISECOND
"""A decision that takes longer is ignored: the next one would come late, too."""

STAGE_UNCHANGED = "the stage stays as it is"
LONGEST_WHY = 200


def ask(
    name: str,
    policy: ScalingPolicy,
    measures: StageMeasures,
    limits: Limits,
    memory: object,
    clock: Callable[[], int],
) -> ScalingDecision:
    """Return the policy's decision; when it raises, is late or answers nonsense, the present number and the unchanged memory.

    Args:
        name: of the policy, for the reason.
        policy: the policy to ask.
        measures, limits, memory: arguments of `ScalingPolicy.decide`.
        clock: returns instants in nanoseconds; the caller's, since this module reads no clock.
    """
    started = clock()
    try:
        answer: object = policy.decide(measures, limits, memory)
    except Exception as error:  # noqa: BLE001 — user code
        return _left_alone(name, f"raised {type(error).__name__}: {error}", measures, memory)
    elapsed = clock() - started
    if elapsed > DECISION_TIMEOUT_NS:
        late = f"took {elapsed / MILLISECOND:.0f} ms, at most {DECISION_TIMEOUT_NS / MILLISECOND:.0f} are allowed"
        return _left_alone(name, late, measures, memory)
    if not isinstance(answer, ScalingDecision):
        return _left_alone(name, f"returned {type(answer).__name__} instead of ScalingDecision", measures, memory)
    fault = _nonsense(answer, limits)
    return _left_alone(name, fault, measures, memory) if fault else answer


def _nonsense(answer: ScalingDecision, limits: Limits) -> str:
    """Return the error in a decision; empty: none. Types are checked because no earlier code has checked them."""
    wanted: object = answer.wanted
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        return f"returned {str(wanted)[:40]!r} instances, which is not an integer"
    if wanted != limits.clamp(wanted):
        return f"returned {wanted} instances, outside the limits {limits.low}..{limits.high}"
    why: object = answer.why
    if not isinstance(why, str) or len(why) > LONGEST_WHY:
        return f"returned a reason that is not a text of at most {LONGEST_WHY} characters"
    terms: object = answer.terms
    if not isinstance(terms, Mapping):
        return "returned terms that are not a mapping of names to numbers"
    for term, value in terms.items():
        if not isinstance(term, str) or isinstance(value, bool) or not isinstance(value, int | float):
            return f"returned a term {str(term)[:40]!r} that is not a number"
        if not math.isfinite(value):
            return f"returned a term {term[:40]!r} that is not finite"
    return ""


def _left_alone(name: str, what: str, measures: StageMeasures, memory: object) -> ScalingDecision:
    return ScalingDecision(measures.instances, f"policy {name} {what[:LONGEST_WHY]}; {STAGE_UNCHANGED}", {}, memory)
