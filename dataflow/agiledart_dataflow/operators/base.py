"""Interface of every operator, and the state methods of an operator whose whole state is in a store."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.batch import Held, Order
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges
from agiledart_dataflow.state.key_groups import Division, KeyGroupStore, OperatorState, WithoutRest

S = TypeVar("S", bound=KeyGroupStore)

Output = tuple[list[Any], list[Position]]

OnOperatorError = Callable[[Exception, Any, Any], None]
"""Handler of an error that user code raised: (error, record, its position). `NO_RECORD` stands for a timer or a result.
"""


class Operator(OperatorState, Protocol):
    """Head of a stage. It is synchronous; it sees rows and positions, never peers, clocks or the order of arrival.

    Attributes:
        name: name of the step.
        counts: rows that the step took and gave.
        function: the user's function that errors name as their cause, or None.
    """

    name: str
    counts: StepCounts
    function: Callable[..., Any] | None

    def run(self, rows: list[Any], positions: list[Position], watermark: Position) -> Output:
        """Take rows at or below `watermark`, advance time to it, and return the results in order of position."""
        ...

    @property
    def state_keys(self) -> int:
        """Return the number of keys that have state."""
        ...


@runtime_checkable
class BatchOperator(Protocol):
    """Operator that takes a batch in either form, rows or columns."""

    def run_batch(self, held: Held, order: Order, watermark: Position) -> tuple[Held, Order]:
        """Do the work of `run` on a batch as it came."""
        ...


@runtime_checkable
class HasSides(Protocol):
    """Operator that puts rows aside, for its side outputs.

    Attributes:
        sides: rows and their positions by the name of the output; the caller takes and clears them after each run.
    """

    sides: dict[str, tuple[list[Any], list[Any]]]


class StoreBackedState(WithoutRest, Generic[S]):
    """The `OperatorState` of an operator whose whole state is in its store."""

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

    def take_dirty_keys(self) -> DirtyKeys | None:
        return self.store.take_dirty_keys()

    def changes(self, keys: DirtyKeys) -> StateChanges:
        return self.store.changes(keys)

    def begin_snapshot(
        self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()
    ) -> AsyncSnapshot | None:
        return self.store.begin_snapshot(lists, waste)

    def apply(self, changes: StateChanges) -> None:
        self.store.apply(changes)
