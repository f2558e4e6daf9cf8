"""Effects of placement."""

from agiledart_kernel.machine import Effect
from agiledart_placement.plan_question import PlanQuestion


class SolvePlacement(Effect, frozen=True, gc=False):
    """Let the planner process answer a question; the driver starts the process when it is needed.

    `Completed.result`: a `PlanAnswer`. `Failed.reason`: why there is none: the process died, was late, or answered nonsense.
    """

    request: int
    question: PlanQuestion
