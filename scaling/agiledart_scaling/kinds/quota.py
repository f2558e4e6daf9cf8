"""How many instances an application may have on a node and in all, when several stages want more at once."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Growth:
    """A stage's wish: instances that it has, and that it wants."""

    stage: str
    instances: int
    wanted: int


def within_quota(growths: Sequence[Growth], others: int, most: int | None) -> dict[str, int]:
    """What each stage may have.

    Stages that shrink do so, and what they give counts for the others. Those that grow get one instance each in turn,
    in the order given (topological: what is upstream decides how much comes), until the quota is used up.

    Args:
        growths: of all stages that are decided on.
        others: instances that are not decided on now.
        most: the quota; None: there is none.
    """
    allowed = {one.stage: min(one.instances, one.wanted) for one in growths}
    room = None if most is None else most - others - sum(allowed.values())
    while room is None or room > 0:
        asking = [one for one in growths if allowed[one.stage] < one.wanted]
        if not asking:
            break
        if room is None:
            allowed.update({one.stage: one.wanted for one in asking})
            break
        for one in asking[:room]:
            allowed[one.stage] += 1
        room -= min(room, len(asking))
    return allowed
