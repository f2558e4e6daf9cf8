"""Which instances of one term of a stage go on for which of the term before. Pure; agents ask it, too, to know what to fetch.

Source: scaling specification, section 8, step 6.
"""

from agiledart_dataflow.plan.stage_plan import Stage
from agiledart_kernel.limits import KEY_GROUPS


def successor_of(index: int, after: Stage) -> int:
    """The instance of the next term that goes on counting for one of the term before."""
    return index % after.parallelism


def predecessors_of(before: Stage, after: Stage, index: int) -> tuple[int, ...]:
    """The instances of a term without which one of the next cannot begin: those that own what it will own, and those whose heir it
    is. One to which nothing goes at all waits for the first.
    """
    groups = range(KEY_GROUPS) if before.owners else range(0)
    owned = [before.owners[group] for group in groups if after.owners[group] == index]
    heirs = [one for one in range(before.parallelism) if successor_of(one, after) == index]
    return tuple(sorted(dict.fromkeys(owned + heirs))) or (0,)
