"""Split of an application's instance quota when several stages request more instances at once."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Growth:
    """Request of one stage: its instances now, and the number that it wants."""

    stage: str
    instances: int
    wanted: int


def within_quota(growths: Sequence[Growth], others: int, most: int | None) -> dict[str, int]:
    """Return the number of instances that each stage may have.

    Stages that shrink do so, and the instances they release count for the others. Growing stages get one instance each in turn,
    in the order given (topological: upstream stages decide how many rows come), until the quota is used up.

    Args:
        growths: of all stages that are decided on.
        others: instances of stages that are not decided on now.
        most: the quota; None: there is none.
    """
    allowed = {growth.stage: min(growth.instances, growth.wanted) for growth in growths}
    remaining = None if most is None else most - others - sum(allowed.values())
    while remaining is None or remaining > 0:
        unsatisfied = [growth for growth in growths if allowed[growth.stage] < growth.wanted]
        if not unsatisfied:
            break
        if remaining is None:
            allowed.update({growth.stage: growth.wanted for growth in unsatisfied})
            break
        for growth in unsatisfied[:remaining]:
            allowed[growth.stage] += 1
        remaining -= min(remaining, len(unsatisfied))
    return allowed
