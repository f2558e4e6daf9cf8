"""Parallelism that a user requests: one number, or limits between which the stage may scale while it runs."""

from collections.abc import Mapping, Sequence
from typing import Final

from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stage_plan import suggestion
from agiledart_kernel.errors import TopologyError
from agiledart_kernel.limits import MAX_PARALLELISM

RequestedParallelism = int | tuple[int, int]
"""Instances of a stage: a number, or lower and upper limit."""

SCALE: Final = "scale"
"""Option of a step whose builder gave its stage limits."""

_BETWEEN: Final = ".."


def parse_limits(text: str) -> RequestedParallelism | None:
    """Return the number or the limits in `4` or `1..8`; None: the text is neither, or out of range."""
    low, between, high = text.partition(_BETWEEN)
    numbers = [int(part) for part in ((low, high) if between else (low,)) if part.isascii() and part.isdecimal()]
    if not between:
        return numbers[0] if numbers and is_valid_parallelism(numbers[0]) else None
    return (numbers[0], numbers[1]) if len(numbers) == 2 and is_valid_parallelism((numbers[0], numbers[1])) else None


def limits_text(asked: RequestedParallelism) -> str:
    """Return the text `4` or `1..8`."""
    return str(asked) if isinstance(asked, int) else f"{asked[0]}{_BETWEEN}{asked[1]}"


def is_valid_parallelism(asked: RequestedParallelism) -> bool:
    """Return whether a stage can have this parallelism: 1 to 128, the lower limit first."""
    low, high = (asked, asked) if isinstance(asked, int) else asked
    return 1 <= low <= high <= MAX_PARALLELISM


def check_parallelism(asked: RequestedParallelism) -> None:
    """Raise `TopologyError` for a parallelism that no stage can have."""
    if is_valid_parallelism(asked):
        return
    allowed = f"1 to {MAX_PARALLELISM} (one for each key group)"
    if isinstance(asked, int):
        raise TopologyError(f"Parallelism {asked} is not possible: {allowed}")
    raise TopologyError(f"Limits {limits_text(asked)} are not possible: {allowed}, the lower number first")


class ParallelismRequest:
    """The user's request after validation: from the submission, else from the builder.

    Raises:
        TopologyError: numbers out of range, an unknown name of a step.
    """

    def __init__(self, specification: Specification, asked: int | Mapping[str, RequestedParallelism]) -> None:
        self._everywhere: RequestedParallelism = asked if isinstance(asked, int) else 1
        self._by_name: dict[str, RequestedParallelism] = {} if isinstance(asked, int) else dict(asked)
        names = [step.name for step in specification.steps]
        for name in self._by_name:
            if name not in names:
                near = suggestion(name, names)
                raise TopologyError(f"No step {name!r} in {specification.name}.{near} Steps: {', '.join(names)}")
        for number in (self._everywhere, *self._by_name.values()):
            check_parallelism(number)

    def of_stage(self, steps: Sequence[StepSpecification]) -> RequestedParallelism:
        """Return the parallelism of the stage that holds these steps.

        Raises:
            TopologyError: its steps disagree, or it runs once and several instances are requested.
        """
        named = {step.name: self._by_name[step.name] for step in steps if step.name in self._by_name}
        if not named:
            named = {step.name: built for step in steps if (built := builder_limits(step)) is not None}
        if len(frozenset(named.values())) > 1:
            text = ", ".join(f"{name}={limits_text(asked)}" for name, asked in named.items())
            raise TopologyError(f"These steps run together in one stage and need one number: {text}")
        if any(step.traits.runs_once for step in steps):
            for name, asked in named.items():
                if asked not in (1, (1, 1)):
                    raise TopologyError(
                        f"{name} runs once ({steps[0].kind}); parallelism {limits_text(asked)} is not possible"
                    )
            return 1
        return next(iter(named.values()), self._everywhere)


def builder_limits(step: StepSpecification) -> tuple[int, int] | None:
    """Return the limits that the builder gave a step; None: it gave none. Raises TopologyError for a text that no builder
    writes."""
    text = step.option(SCALE)
    if not text:
        return None
    limits = parse_limits(text)
    if not isinstance(limits, tuple):
        raise TopologyError(f"{step.name}: {text!r} is not a pair of limits, as 1..8")
    return limits
