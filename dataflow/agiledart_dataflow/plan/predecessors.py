"""Mapping between the instances of two successive generations of a stage. Pure; agents use it, too, to choose what to fetch.

Source: scaling specification, section 8, step 6.
"""

from agiledart_dataflow.plan.stage_plan import Stage
from agiledart_kernel.limits import KEY_GROUPS


def successor_of(index: int, after: Stage) -> int:
    """Return the instance of the next generation that continues the counts of an instance."""
    return index % after.parallelism


def predecessors_of(before: Stage, after: Stage, index: int) -> tuple[int, ...]:
    """Return the instances of a generation whose state an instance of the next one needs before it can begin.

    These are the instances that own the key groups that it will own, and those that it succeeds. An instance that takes over
    nothing waits for the first.
    """
    groups = range(KEY_GROUPS) if before.owners else range(0)
    owned = [before.owners[group] for group in groups if after.owners[group] == index]
    succeeded = [old for old in range(before.parallelism) if successor_of(old, after) == index]
    return tuple(sorted(dict.fromkeys(owned + succeeded))) or (0,)
