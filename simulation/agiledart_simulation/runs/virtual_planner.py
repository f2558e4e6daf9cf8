"""Planner process of the scenario `placing`: plans are made at once and answered after a modelled time, or badly."""

from collections.abc import Callable
from typing import Final

import msgspec

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Completed, Failed
from agiledart_kernel.randomness import RandomStream
from agiledart_node.wire.placement_effects import SolvePlacement
from agiledart_placement.plan_answering import answer_question
from agiledart_placement.registry import STRATEGIES

PLANNING_NS: Final = 300 * MILLISECOND
"""Modelled time of a plan."""

DRAWN: Final = (STRATEGIES[0], STRATEGIES[0], "hill_climbing")
"""Strategies drawn for the agents of a run; the first one needs no planner."""

FAULTS: Final = ("dead", "late", "lies")


class VirtualPlanner:
    """Planner of all nodes of a run.

    Args:
        seed: of its draws.
        note: counts an event.

    Attributes:
        strategy: of the agents' settings.
    """

    def __init__(self, seed: int, note: Callable[[str], None]) -> None:
        self._draws, self._note, self._fault = RandomStream(seed, "planner"), note, ""
        self.strategy = self._draws.choice(DRAWN)

    def break_it(self) -> None:
        """Begin a fault."""
        self._fault = self._draws.choice(FAULTS)

    def mend(self) -> None:
        """End the fault."""
        self._fault = ""

    def answer(self, effect: SolvePlacement) -> tuple[int, Completed | Failed]:
        """Return the answer to a question, and nanoseconds until it comes."""
        if self._fault == "dead":
            self._note("planner-dead")
            return PLANNING_NS, Failed(effect.request, "the process of the planner ended")
        self._note("planned")
        solved = answer_question(effect.question, lambda: 0.0)
        if self._fault == "lies":
            self._note("planner-lies")
            names = [node["name"] for node in effect.question.network["nodes"]] + ["nowhere"]
            wrong = {stage: [self._draws.choice(names) for _ in nodes] for stage, nodes in solved.placement.items()}
            solved = msgspec.structs.replace(solved, placement=wrong)
        if self._fault == "late":
            self._note("planner-late")
            return int(self._draws.between(1, 200) * SECOND), Completed(effect.request, solved)
        return PLANNING_NS, Completed(effect.request, solved)
