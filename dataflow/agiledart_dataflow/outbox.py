"""`Outbox`: an instance's records → batches for the instances of the next stages, each batch with the mark."""

from collections.abc import Callable
from typing import Any

from agiledart_dataflow.batch import Batch
from agiledart_dataflow.partitioning import KeyFunction, KeyRouter
from agiledart_dataflow.position import START, Position
from agiledart_dataflow.stages import Edge, StagePlan
from agiledart_dataflow.user_errors import user_code_error
from agiledart_kernel.limits import MAX_BATCH_ROWS

Emit = Callable[[int, int, Batch], None]
"""emit(edge, target instance, batch): hand a batch to a channel."""


class _Route:
    """One outgoing edge."""

    __slots__ = ("edge", "key_of", "next_target", "router", "step", "targets")

    def __init__(self, edge: Edge, targets: range, step: str, key_of: KeyFunction | None) -> None:
        self.edge = edge
        self.targets = targets
        self.step = step
        self.key_of = key_of
        self.router = KeyRouter(len(targets)) if edge.partitioning == "key" else None
        self.next_target = 0

    def send(self, rows: list[Any], positions: list[Position], mark: Position, emit: Emit) -> None:
        edge = self.edge.index
        if len(self.targets) == 1 or not rows:
            for target in self.targets:
                emit(edge, target, Batch(rows, positions, mark))
            return
        if self.router is None:
            # A whole batch to one instance, the mark to all: rows of one batch stay together.
            chosen = self.next_target
            self.next_target = (chosen + 1) % len(self.targets)
            for target in self.targets:
                emit(edge, target, Batch(rows, positions, mark) if target == chosen else Batch([], [], mark))
            return
        parts: list[tuple[list[Any], list[Position]]] = [([], []) for _ in self.targets]
        key_of, router = self.key_of, self.router
        assert key_of is not None  # a keyed edge leads to a keyed step
        row: Any = None
        try:
            for row, position in zip(rows, positions, strict=True):
                part = parts[router[key_of(row)]]
                part[0].append(row)
                part[1].append(position)
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            raise user_code_error(f"key_by of {self.step}", key_of, error, row) from error
        for target, part in enumerate(parts):
            emit(edge, target, Batch(part[0], part[1], mark))


class Outbox:
    """All outgoing edges of one instance.

    Args:
        plan: the application's plan.
        stage, index: the instance.
        key_functions: for each keyed edge the name of the keyed step, and row → key.
    """

    __slots__ = ("_routes", "mark")

    def __init__(
        self, plan: StagePlan, stage: int, index: int, key_functions: dict[int, tuple[str, KeyFunction]]
    ) -> None:
        self._routes = [
            _Route(edge, plan.targets(edge.index, index), *key_functions.get(edge.index, ("", None)))
            for edge in plan.outgoing(stage)
        ]
        self.mark: Position = START

    def send(self, rows: list[Any], positions: list[Position], mark: Position, emit: Emit) -> None:
        """Send records and mark to all edges; nothing when there is nothing new to say."""
        if not rows and mark <= self.mark:
            return
        self.mark = mark
        for batch in Batch(rows, positions, mark).pieces(MAX_BATCH_ROWS):
            for route in self._routes:
                route.send(batch.rows, batch.positions, batch.mark, emit)

    def snapshot(self) -> Any:
        """The mark given and whose turn it is, as plain data."""
        return self.mark, [route.next_target for route in self._routes]

    def restore(self, plain: Any) -> None:
        """Go back to a snapshot."""
        self.mark, turns = plain
        for route, turn in zip(self._routes, turns, strict=True):
            route.next_target = turn
