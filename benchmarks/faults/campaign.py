"""Campaign of draws: submit the job, cause and end the fault, check the invariants."""

import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from benchmarks.faults.draws import Draw, drawn
from benchmarks.faults.invariants import Finals, Lap, descriptors_of, violations_of
from benchmarks.faults.job import READINGS, read_folds
from benchmarks.faults.lab import FINAL, FaultLab, lab, waited
from benchmarks.faults.strikes import STRIKES, Impossible, for_a_while

SHARES: Final = {"early": 0.1, "late": 0.5}
"""Share of the results at which a fault of this moment begins."""

WORDS_OF_NO: Final = 20
"""Least number of characters in a refusal, so that it gives a reason in words."""


@dataclass
class DrawOutcome:
    """Outcome of one draw. `state`: the job's; `skipped`: why the fault is impossible here; `took`: seconds of each part;
    `struck`: agents."""

    draw: Draw
    state: str = ""
    reason: str = ""
    seconds: float = 0.0
    skipped: str = ""
    struck: tuple[str, ...] = ()
    took: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "again": self.draw.again}


class FaultCampaign:
    """Draws on one lab; a new lab follows a violation or a draw that sets clocks, so that draws do not affect each other."""

    def __init__(self) -> None:
        self.outcomes: list[DrawOutcome] = []

    def run(self, first: int, kinds: tuple[str, ...], draws: int, minutes: float, print_line: Any) -> None:
        """Carry out so many draws, or as many as the time permits."""
        until = time.monotonic() + 60 * minutes
        number = first
        while number < first + draws and time.monotonic() < until:
            with lab(has_clocks=drawn(number, kinds).kind == "clock") as made:
                finals: Finals = {}
                files = {agent.name: descriptors_of(agent.pid) for agent in made.mesh.agents}
                while number < first + draws and time.monotonic() < until:
                    draw = drawn(number, kinds)
                    if (draw.kind == "clock") != made.has_clocks:
                        break
                    outcome = play(made, draw, finals, files)
                    self.outcomes.append(outcome)
                    print_line(outcome, made)
                    number += 1
                    if outcome.violations:
                        break

    def to_dict(self) -> dict[str, Any]:
        """Return the results for JSON."""
        ran = [outcome for outcome in self.outcomes if not outcome.skipped]
        return {
            "draws": len(ran),
            "violations": sum(bool(outcome.violations) for outcome in ran),
            "skipped": dict(Counter(outcome.skipped for outcome in self.outcomes if outcome.skipped)),
            "classes": dict(sorted(Counter(outcome.draw.kind for outcome in ran).items())),
            "states": dict(sorted(Counter(outcome.state or "refused" for outcome in ran).items())),
            "outcomes": [outcome.to_dict() for outcome in self.outcomes],
        }


def play(made: FaultLab, draw: Draw, finals: Finals, files: dict[str, int]) -> DrawOutcome:
    """Carry out one draw, from submission to the checks."""
    outcome, name = DrawOutcome(draw), f"job{draw.number}"
    took = Lap(outcome.took)
    answers: list[Any] = []
    submitting = threading.Thread(target=lambda: answers.append(made.submit(name, delivery=draw.delivery)))
    submitting.start()
    if draw.moment == "forming":
        waited(lambda: made.status(name)["state"], 30.0)
    else:
        submitting.join()
        took("submitting")
        _until(made, draw, name)
    took("moment")
    try:
        agent = made.agent_in(draw.role, name)
        with STRIKES[draw.kind](made, draw, agent, name) as struck:
            outcome.struck = struck
            for_a_while(draw.seconds)
    except Impossible as error:
        outcome.skipped = str(error)
    submitting.join()
    took("fault")
    ran = answers[0].returncode == 0
    if not ran and len(answers[0].stderr) < WORDS_OF_NO:
        outcome.violations.append(f"refused: in the words {answers[0].stderr!r}")
    outcome.violations += violations_of(made, draw, name, finals, files, outcome.struck, took, ran=ran)
    status = made.status(name) if ran else {"state": "", "reason": answers[0].stderr.strip()}
    outcome.state, outcome.reason = status["state"], status.get("reason", "")
    outcome.seconds = round(sum(outcome.took.values()), 1)
    return outcome


def _until(made: FaultLab, draw: Draw, name: str) -> None:
    """Wait for the moment of a draw, or for the job's end."""

    def is_over() -> bool:
        return made.status(name)["state"] in FINAL

    if draw.moment == "after":
        waited(is_over, 60.0)
    else:
        wanted = SHARES[draw.moment] * 2 * READINGS
        waited(lambda: len(read_folds(made.folds(name))) >= wanted or is_over(), 60.0)
