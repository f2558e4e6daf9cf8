"""Asking a policy that others wrote: whatever it does, the stage is left alone and the policy is named.

What never returns cannot be seen here: who asks the policy of a user does it where a thread can be given up.
"""

import math
from collections.abc import Callable, Mapping

from agiledart_kernel.instants import MILLISECOND
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.scaling_policy import ScalingDecision, ScalingPolicy

DECISION_TIMEOUT_NS = 100 * MILLISECOND
"""A decision that takes longer is not taken: the next one would come late, too."""

STAGE_UNCHANGED = "the stage is left alone"
LONGEST_WHY = 200


def ask(
    name: str,
    policy: ScalingPolicy,
    measures: StageMeasures,
    limits: Limits,
    memory: object,
    clock: Callable[[], int],
) -> ScalingDecision:
    """What the policy wants; today's number, and the memory as it was, when it raises, is late or answers nonsense.

    Args:
        name: of the policy, for the reason.
        clock: instants in nanoseconds; of the caller, since nothing here reads one.
    """
    started = clock()
    try:
        answer: object = policy.decide(measures, limits, memory)
    except Exception as error:  # noqa: BLE001 — user code
        return _left_alone(name, f"raised {type(error).__name__}: {error}", measures, memory)
    took = clock() - started
    if took > DECISION_TIMEOUT_NS:
        late = f"took {took / MILLISECOND:.0f} ms, at most {DECISION_TIMEOUT_NS / MILLISECOND:.0f} are allowed"
        return _left_alone(name, late, measures, memory)
    if not isinstance(answer, ScalingDecision):
        return _left_alone(name, f"answered a {type(answer).__name__} instead of a Decision", measures, memory)
    wrong = _nonsense(answer, limits)
    return _left_alone(name, wrong, measures, memory) if wrong else answer


def _nonsense(answer: ScalingDecision, limits: Limits) -> str:
    """What is wrong with a decision; empty: nothing. Types are looked at since nobody else has."""
    wanted: object = answer.wanted
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        return f"wants {str(wanted)[:40]!r} instances, which is no whole number"
    if wanted != limits.clamp(wanted):
        return f"wants {wanted} instances, outside of the limits {limits.low}..{limits.high}"
    why: object = answer.why
    if not isinstance(why, str) or len(why) > LONGEST_WHY:
        return f"gives a reason that is no text of at most {LONGEST_WHY} characters"
    terms: object = answer.terms
    if not isinstance(terms, Mapping):
        return "gives terms that are no mapping of names to numbers"
    for term, value in terms.items():
        if not isinstance(term, str) or isinstance(value, bool) or not isinstance(value, int | float):
            return f"gives a term {str(term)[:40]!r} that is no number"
        if not math.isfinite(value):
            return f"gives a term {term[:40]!r} that is not finite"
    return ""


def _left_alone(name: str, what: str, measures: StageMeasures, memory: object) -> ScalingDecision:
    return ScalingDecision(measures.instances, f"policy {name} {what[:LONGEST_WHY]}; {STAGE_UNCHANGED}", {}, memory)
