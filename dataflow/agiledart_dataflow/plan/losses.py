"""What becomes of an exactly-once run when a node is gone that has a source, a sink or a state: what users write as `on_…_lost`.

It stands as an option at each source, sink and step with state, so it is part of the digest that a user's order signs.
"""

from typing import Final, Literal, get_args

IF_LOST: Final = "if_lost"
"""Option of a step; not there: `wait`."""

NodeLost = Literal["wait", "move", "fail"]
"""The node of a source or sink is gone: the run waits for it, another node goes on, or the run has failed."""

StateLost = Literal["wait", "fail", "empty", "previous"]
"""More holders of a state's fragments are gone than may be: the run waits for them, has failed, goes on with an empty state, or
all of it goes on from the epoch before the last one.
"""

WAIT: Final = "wait"
MOVE: Final = "move"
FAIL: Final = "fail"
EMPTY: Final = "empty"
PREVIOUS: Final = "previous"

NODE_LOST: Final[tuple[str, ...]] = get_args(NodeLost)
STATE_LOST: Final[tuple[str, ...]] = get_args(StateLost)
