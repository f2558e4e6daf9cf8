"""A key group goes from one state to another one of the same step in one process: as it is where both keep it in memory."""

from agiledart_dataflow.state.key_groups import OperatorState
from agiledart_dataflow.state.store import MemoryStore


def move_group(origin: OperatorState, target: OperatorState, group: int) -> None:
    """Take a group out of one state and put it into the other; no entry of it is copied where that can be avoided."""
    given, taken = getattr(origin, "store", None), getattr(target, "store", None)
    if isinstance(given, MemoryStore) and isinstance(taken, MemoryStore):
        taken.adopt_group(group, *given.hand_over_group(group))
        return
    target.restore_group(group, origin.snapshot_group(group))
    origin.drop_group(group)
