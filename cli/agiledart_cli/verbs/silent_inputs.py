"""Sources that may be silent while rows of others wait for them, by the specification of an application."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agiledart_dataflow.plan.specification import Specification


def waiting_input_texts(specification: "Specification") -> list[str]:
    """Return a warning for each step at which live sources wait for each other, because one of them has no `idle_timeout=`."""
    from agiledart_dataflow.plan.waiting_inputs import inputs_that_may_wait  # plans; needed before a submission only

    return [
        f"{waiting.step} takes rows of {' and '.join(waiting.sources)} in order of time: while"
        f" {' or '.join(waiting.without_timeout)} is silent, the others wait. `idle_timeout=` lets them go on, and rows that"
        " come afterwards may be late."
        for waiting in inputs_that_may_wait(specification)
    ]
