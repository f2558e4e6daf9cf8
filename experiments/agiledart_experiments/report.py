"""Report of an experiment: its parameters, its figures beside the published values, and the goals that the figures meet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
"""One line of figures: names to numbers, or to None where a figure does not exist."""

ORIGINS = {"published": "printed", "model": "model", "other_run": "other run"}
"""Ending of a column with a value to compare with → where the value comes from: printed in the paper, a formula, an independent
run of the same rules."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure.

    Attributes:
        what: the bound in words.
        met: whether the figures meet the bound.
    """

    what: str
    met: bool


@dataclass(frozen=True, slots=True)
class ExperimentReport:
    """Outcome of one run of an experiment.

    Attributes:
        parameters: all values that the figures depend on, except the seed.
        rows: the figures, in the order of the x axis.
        goals: bounds that hold at this scale.
        notes: facts that a reader needs to interpret the figures.
    """

    parameters: Mapping[str, Any]
    rows: tuple[Row, ...]
    goals: tuple[Goal, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Return whether all goals are met."""
        return all(goal.met for goal in self.goals)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one run of an experiment.

    Attributes:
        seed: seed of all random choices.
        scale: `small` ends within half a minute; `paper` has the published sizes.
        sizes: values of the x axis that replace those of the scale; empty: those of the scale.
        policy: the only scaling policy to run; empty: all policies that the experiment compares.
        fault: fault that the experiment injects into hosts; empty: the first fault of the experiment.
        runs: number of faults, or of pairs beside another engine; 0: the number of the scale.
        replica_nodes: number of replica nodes of a host's state that die with the host; 0: none.
        again: the replica nodes die while the host's state is being restored, not together with the host.
        code: the only erasure code, `M+K`, for that state; empty: all codes of the experiment.
        apps: applications to run; empty: all of the experiment.
        beside: another engine that runs the same in turns; empty: none.
        real: the run measures agents of this machine, instead of the simulator or a model.
        progress: callback that receives a short text for each step.
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
    apps: tuple[str, ...] = ()
    beside: str = ""
    real: bool = False

    @property
    def is_paper(self) -> bool:
        """Return whether the run has the published sizes."""
        return self.scale == "paper"

    def command(self, experiment: str) -> str:
        """Return the command that repeats a run of this experiment with these settings."""
        options: dict[str, Any] = {
            "seed": self.seed,
            "scale": self.scale,
            "sizes": ",".join(map(str, self.sizes)),
            "policy": self.policy,
            "fault": self.fault,
            "runs": self.runs,
            "replica-nodes": self.replica_nodes,
            "code": self.code,
            "app": ",".join(self.apps),
            "beside": self.beside,
        }
        words = [f"--{name} {value}" for name, value in options.items() if value or name == "seed"]
        flags = [f"--{name}" for name, is_set in (("again", self.again), ("real", self.real)) if is_set]
        return " ".join(("agiledart experiment run", experiment, *words, *flags, "-o json"))

    def sizes_or(self, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Return the requested sizes in ascending order, or the usual sizes when none were requested."""
        return tuple(sorted(dict.fromkeys(self.sizes))) or usual
