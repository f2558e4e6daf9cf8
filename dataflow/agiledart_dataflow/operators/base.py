"""What every operator must do, and how one keeps its state whose state is all in a store."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.state.groups import Division, State, Store, WithoutRest
from agiledart_dataflow.state.notes import Changes, Noted
from agiledart_dataflow.state.open_groups import OpenGroups

S = TypeVar("S", bound=Store)

Output = tuple[list[Any], list[Position]]

Mishap = Callable[[Exception, Any, Any], None]
"""What to do when user code raised at a record, or at a timer or a result (then `NO_RECORD`): (error, record, its place)."""


class Operator(State, Protocol):
    """The head of a stage. Synchronous; sees rows and positions, never peers, clocks or arrival order.

    Attributes:
        name: the step.
        counts: what it took and gave.
        function: the user's function that errors are blamed on, or None.
    """

    name: str
    counts: StepCounts
    function: Callable[..., Any] | None

    def run(self, rows: list[Any], positions: list[Position], mark: Position) -> Output:
        """Take rows at or below `mark`, let time pass up to it, and return what follows, in order of position."""
        ...

    @property
    def state_keys(self) -> int:
        """How many keys it remembers."""
        ...


class StateInStore(WithoutRest, Generic[S]):
    """The `State` of an operator that keeps nothing but what is in its store."""

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

    def noted(self) -> Noted | None:
        return self.store.noted()

    def changes(self, keys: Noted) -> Changes:
        return self.store.changes(keys)

    def open_groups(self, lists: Sequence[Noted] | None, waste: Iterable[Noted] = ()) -> OpenGroups | None:
        return self.store.open_groups(lists, waste)

    def apply(self, changes: Changes) -> None:
        self.store.apply(changes)
