"""Move of a key group between two states of the same step in one process, without encoding where both are in memory."""

from typing import Protocol, runtime_checkable

from agiledart_dataflow.state.key_groups import OperatorState
from agiledart_dataflow.state.store import MemoryStore


@runtime_checkable
class _HasStore(Protocol):
    """State that is in a store."""

    store: object


def move_group(origin: OperatorState, target: OperatorState, group: int) -> None:
    """Move a group from one state to another; entries are not copied where that can be avoided."""
    if isinstance(origin, _HasStore) and isinstance(target, _HasStore):
        origin_store, target_store = origin.store, target.store
        if isinstance(origin_store, MemoryStore) and isinstance(target_store, MemoryStore):
            target_store.adopt_group(group, *origin_store.hand_over_group(group))
            return
    target.restore_group(group, origin.snapshot_group(group))
    origin.drop_group(group)
