"""Standby of a step: another host that holds its state ready, to take it over at once. A user's option of the step.

It is an option, so it is part of the digest that a user's command signs.
"""

from typing import Final

from agiledart_dataflow.plan.specification import StepSpecification

STANDBY: Final = "standby"
"""Option of a step: the number of standby hosts; absent: none."""

MOST_STANDBYS: Final = 1
"""Standby hosts of one instance. Recovery has the same limit."""


def standby_of(step: StepSpecification) -> int:
    """Return the number of standby hosts that a step asks for; 0 for a text that is no such number."""
    text = step.option(STANDBY)
    return int(text) if text.isdecimal() and int(text) <= MOST_STANDBYS else 0
