"""Question that a planner process answers, and its answer. Both are plain documents, so that neither side trusts the other.

A planner runs strategies that may take long, need much memory, or come from users' packages. The asking node verifies every answer.

Source: spec of placement §10.
"""

from typing import Annotated, Any, Final

import msgspec

MAX_SECONDS: Final = 60.0
"""Longest time for one plan."""

_Text = Annotated[str, msgspec.Meta(max_length=1_000)]


class PlanQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A placement problem.

    Args:
        strategy, objective: by name.
        network, topology: documents of `agiledart place`.
        start: placement now, stage → names of nodes; empty: none.
        seconds: time for the search.
        seed: of its random choices.
    """

    strategy: str
    objective: str
    network: dict[str, Any]
    topology: dict[str, Any]
    start: dict[str, list[str]] = {}
    seconds: float = 10.0
    seed: int = 1


class PlanAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A planner's answer.

    Args:
        placement: stage → names of nodes, in the order of the instances; empty: none.
        status: as of `SearchReport`.
        gap: distance to the bound, as a share; None: unknown.
        value: of the objective, by the planner's own evaluation.
        seconds: that it took.
        refusal: why there is no placement, in words.
    """

    placement: dict[
        Annotated[str, msgspec.Meta(max_length=256)], list[Annotated[str, msgspec.Meta(max_length=256)]]
    ] = {}
    status: Annotated[str, msgspec.Meta(max_length=32)] = ""
    gap: float | None = None
    value: float | None = None
    seconds: float = 0.0
    refusal: _Text = ""
