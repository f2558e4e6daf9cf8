"""What every operator with state must do, and how one does it whose state is all in a store."""

from collections.abc import Callable
from typing import Any, Protocol

from agiledart_dataflow.counts.statistics import StepCounts
from agiledart_dataflow.data.position import Position
from agiledart_dataflow.state.store import KeyedStore

Output = tuple[list[Any], list[Position]]

Mishap = Callable[[Exception, Any, Any], None]
"""What to do when user code raised at a record, or at a timer or a result (then `NO_RECORD`): (error, record, its place)."""


class Operator(Protocol):
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

    def snapshot(self) -> Any:
        """Its state as plain data (rows and keys as they are)."""
        ...

    def restore(self, plain: Any) -> None:
        """Go back to a snapshot, with the types that its state had."""
        ...


class StateInStore:
    """The last three of these for an operator that keeps nothing but what is in its store."""

    store: KeyedStore

    @property
    def state_keys(self) -> int:
        return len(self.store)

    def snapshot(self) -> Any:
        """All key groups as bytes: (group, bytes) in order."""
        return self.store.snapshot()

    def restore(self, plain: Any) -> None:
        for group, data in plain:
            self.store.restore_group(group, data)
