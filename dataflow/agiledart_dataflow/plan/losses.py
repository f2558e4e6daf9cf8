"""Policies for an exactly-once run that loses the node of a source, of a sink or of state: users' options `on_…_lost`.

Each source, sink and step with state has the option, so it is part of the digest that a user's command signs.
"""

from typing import Final, Literal, get_args

IF_LOST: Final = "if_lost"
"""Option of a step; absent: `wait`."""

NodeLost = Literal["wait", "move", "fail"]
"""Policy when the node of a source or sink is lost: the run waits for it, another node takes over, or the run fails."""

StateLost = Literal["wait", "fail", "empty", "previous"]
"""Policy when too many replica nodes of a state's fragments are lost: the run waits for them, fails, continues with an empty
state, or restarts as a whole from the epoch before the last one."""

WAIT: Final = "wait"
MOVE: Final = "move"
FAIL: Final = "fail"
EMPTY: Final = "empty"
PREVIOUS: Final = "previous"

NODE_LOST: Final[tuple[str, ...]] = get_args(NodeLost)
STATE_LOST: Final[tuple[str, ...]] = get_args(StateLost)
