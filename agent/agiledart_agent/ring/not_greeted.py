"""`NotGreeted`: the reason for which no node at an address is greeted."""

from typing import Final, NamedTuple

SILENT_TRIES: Final = 3
BUSY_TRIES: Final = 8
"""How often an agent asks an address that does not answer, and a node that is there and too busy to greet: 35 s at most.

When fifty agents start at one moment on a small machine, the founder is busy for longer than three tries take.
"""


class NotGreeted(NamedTuple):
    """Reason, for users, for which no node at an address is greeted.

    Attributes:
        tries: how often the address is worth a question in all; 1: the answer would not change.
    """

    text: str
    tries: int = 1
