"""What stages must know of the kinds of steps, without their code: how long positions become, which take several inputs."""

from typing import Final

KEYED_PATH: Final = 2
"""Path elements that `operators.keyed_step` appends: −1 and the number of the row, or the timer's number and the row's."""

PATHS: Final[dict[str, int]] = {
    "stateful": KEYED_PATH,
    "broadcast": KEYED_PATH + 1,
    "keyed-window": KEYED_PATH,
    "running": KEYED_PATH,
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
