"""What every operator must do, and how one keeps its state whose state is all in a store."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges
from agiledart_dataflow.state.key_groups import Division, KeyGroupStore, OperatorState, WithoutRest

S = TypeVar("S", bound=KeyGroupStore)

Output = tuple[list[Any], list[Position]]

OnOperatorError = Callable[[Exception, Any, Any], None]
"""What to do when user code raised at a record, or at a timer or a result (then `NO_RECORD`): (error, record, its place)."""


class Operator(OperatorState, Protocol):
    """The head of a stage. Synchronous; sees rows and positions, never peers, clocks or arrival order.

    Attributes:
        name: the step.
        counts: what it took and gave.
        function: the user's function that errors are blamed on, or None.
    """

    name: str
    counts: StepCounts
    function: Callable[..., Any] | None

    def run(self, rows: list[Any], positions: list[Position], watermark: Position) -> Output:
        """Take rows at or below `mark`, let time pass up to it, and return what follows, in order of position."""
        ...

    @property
    def state_keys(self) -> int:
        """How many keys it remembers."""
        ...


class StoreBackedState(WithoutRest, Generic[S]):
    """The `OperatorState` of an operator that keeps nothing but what is in its store."""

    division: ClassVar[Division] = "by group"
    store: S

    @property
    def state_keys(self) -> int:
        return len(self.store)

    def groups(self) -> list[int]:
        return self.store.groups()

    def snapshot_group(self, group: int) -> bytes:
        return self.store.snapshot_group(group)

    def restore_group(self, group: int, data: bytes) -> None:
        self.store.restore_group(group, data)

    def drop_group(self, group: int) -> None:
        self.store.drop_group(group)

    def dirty_keys(self) -> DirtyKeys | None:
        return self.store.dirty_keys()

    def changes(self, keys: DirtyKeys) -> StateChanges:
        return self.store.changes(keys)

    def begin_snapshot(
        self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()
    ) -> AsyncSnapshot | None:
        return self.store.begin_snapshot(lists, waste)

    def apply(self, changes: StateChanges) -> None:
        self.store.apply(changes)
