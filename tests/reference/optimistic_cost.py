"""Index of a link as the paper writes it, from its counts; the planner has it in another form."""

from agiledart_shuffle.divergence import COST_MAX, upper_rate


def optimistic_cost(successes: float, attempts: float, nats: float) -> float:
    """Return ω: the least mean delay of a link in slots that is still plausible; 1 for a link without attempts.

    Args:
        successes, attempts: counts of the link, possibly discounted; 0 ≤ successes ≤ attempts.
        nats: C·ln τ.

    Source: [AgileDART] §V, Algorithm 1, ω.
    """
    if attempts <= 0.0 or successes >= attempts:
        return 1.0
    u = upper_rate(successes / attempts, nats / attempts)
    return 1.0 / u if u * COST_MAX > 1.0 else COST_MAX
