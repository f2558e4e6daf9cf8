"""What an experiment says: its parameters, its figures with the published values beside them, and which goals they meet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
"""One line of figures: names to numbers, or to None where there is nothing to say."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure.

    Attributes:
        what: the bound in words.
        met: whether the figures keep it.
    """

    what: str
    met: bool


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """The outcome of one run.

    Attributes:
        parameters: everything but the seed that the figures depend on.
        rows: the figures, in the order of the x axis.
        goals: bounds that hold at this scale.
        notes: what a reader must know to read the figures right.
    """

    parameters: Mapping[str, Any]
    rows: tuple[Row, ...]
    goals: tuple[Goal, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all goals are met."""
        return all(goal.met for goal in self.goals)


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run.

    Attributes:
        seed: of everything random.
        scale: `small` ends within half a minute; `paper` has the published sizes.
        sizes: values of the x axis to run in place of those of the scale; empty: those of the scale.
        policy: the only scaling policy to run; empty: all that are compared.
        fault: what happens to hosts; empty: the experiment's first one.
        runs: how often it happens; 0: as often as the scale has it.
        holders: so many who keep fragments of a host's state are lost with it; 0: none.
        again: they are lost while the host's state is brought back, not at the same moment.
        code: the only code, `M+K`, by which that state is kept; empty: all that are tried.
        progress: told in a few words what is going on.
    """

    seed: int = 1
    scale: str = "small"
    sizes: tuple[int, ...] = ()
    policy: str = ""
    fault: str = ""
    runs: int = 0
    replica_nodes: int = 0
    again: bool = False
    code: str = ""
    progress: Callable[[str], None] = field(default=lambda _: None)

    @property
    def is_paper(self) -> bool:
        """Whether the published sizes are wanted."""
        return self.scale == "paper"

    def sizes_or(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes asked for, rising, or the usual ones."""
        return tuple(sorted(dict.fromkeys(self.sizes))) or usual
