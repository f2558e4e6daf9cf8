"""What stages must know of the kinds of steps, without their code: how long positions become, which take several inputs."""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from agiledart_dataflow.plan.specification import Specification, StepSpecification

KEYED_PATH: Final = 2
"""Path elements that `operators.keyed_step` appends: −1 and the number of the row, or the timer's number and the row's."""

PATHS: Final[dict[str, int]] = {
    "stateful": KEYED_PATH,
    "broadcast": KEYED_PATH + 1,
    "keyed-window": KEYED_PATH,
    "running": KEYED_PATH,
    "running-values": 0,
    "distinct": KEYED_PATH,
    "pattern": KEYED_PATH,
    "window-join": KEYED_PATH + 1,
    "interval-join": KEYED_PATH + 1,
    "lookup": KEYED_PATH + 1,
}
"""Kinds of steps that a keyed operator carries out → path elements that they append, the number of the branch included."""

JOINS: Final = frozenset({"window-join", "interval-join", "lookup", "broadcast"})
"""Kinds of steps with two inputs whose rows may be of different types; the number of the branch tells them apart."""

BRANCHED: Final = frozenset({"union"}) | JOINS
"""Kinds of steps whose inputs' positions are padded to one length and end in the number of the branch."""

LATENESS: Final = "lateness_ms"
"""Option of a window that goes on listening for late rows."""


def lateness_ms(specification: "Specification") -> int:
    """How late a row may be to be let in at the sources of a topology: as late as the most patient of its windows allows.

    Where it is above zero, positions say by how much each row was late, in the first element of their path.
    """
    return max(
        (int(value) for step in specification.steps for name, value in step.options if name == LATENESS), default=0
    )


_SPANS = re.compile(r"(\d+) ms")


def windows_of_a_row(step: "StepSpecification") -> int:
    """How many windows a row may be in at most, of a hopping or tumbling window in memory."""
    size, every = _SPANS.findall(dict(step.options)["window"])[:2]
    return -(-int(size) // int(every))
