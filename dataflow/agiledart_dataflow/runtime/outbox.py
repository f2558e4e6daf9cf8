"""`Outbox`: an instance's records → batches for the instances of the next stages, each batch with the watermark."""

from collections.abc import Callable, Iterable
from typing import Any

from agiledart_dataflow.data.batch import Batch, Held, Order, as_rows, has_positions, listed
from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.data.partitioning import KeyFunction, KeyRouter, Owners, split_by_key, split_round_robin
from agiledart_dataflow.data.position import START, Position, is_final
from agiledart_dataflow.plan.stage_plan import Edge, StagePlan
from agiledart_dataflow.user_code.user_errors import user_code_error

GONE = -1
"""Stands for all instances of earlier generations together, of which only the count of rows is kept."""

SentCounts = tuple[Position, list[int], list[tuple[int, int, int]]]
"""State of an outbox: its last watermark, the next targets in turn, and (edge, target, rows sent) of each channel."""

Emit = Callable[[int, int, Batch], None]
"""emit(edge, target instance, batch): hand a batch to a channel."""


class _OutgoingEdge:
    """One outgoing edge; `sent` counts the rows for each of its targets, `gone` those for targets of earlier generations."""

    __slots__ = (
        "edge", "gone", "key_of", "lenient", "next_target", "number", "order_of", "owners", "router", "sent", "step", "targets",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        edge: Edge,
        inner: Carries,
        targets: range,
        owners: Owners,
        step: str,
        key_of: KeyFunction | None,
        *,
        lenient: bool,
    ) -> None:
        self.edge = edge
        self.number = edge.index
        self.step = step
        self.key_of = key_of
        self.lenient = lenient  # the keyed step's error policy drops rows
        self.sent: dict[int, int] = {}
        self.gone = 0
        self.retarget(targets, owners)
        self.order_of = None if edge.carries == inner else _nothing if edge.carries == "rows" else _times
        self.waiting: tuple[list[Any], list[Any]] = ([], [])  # rows of a side output, and what goes with them

    def retarget(self, targets: range, owners: Owners) -> None:
        """Send the following rows to these instances, by this table."""
        self.targets, self.owners = targets, owners
        self.router = KeyRouter(owners) if self.edge.partitioning == "key" else None
        self.next_target = 0
        self.gone += sum(self.sent.values())
        self.sent = dict.fromkeys(targets, 0)

    def send(self, held: Held, order: Order, watermark: Position, emit: Emit) -> None:
        if self.order_of is not None:
            order = self.order_of(order)
        number, targets = self.number, self.targets
        count = len(held)
        if len(targets) == 1 or not count:
            for target in targets:
                self.sent[target] += count
                emit(number, target, _made(held, order, watermark))
            return
        if self.edge.partitioning == "broadcast":
            for target in targets:
                self.sent[target] += count
                emit(number, target, _made(held, order, watermark))
            return
        if self.router is None and has_positions(order):
            parts = split_round_robin(as_rows(held), listed(order), self.owners, len(targets))
            for target, (rows, positions) in enumerate(parts, targets.start):
                self.sent[target] += len(rows)
                emit(number, target, _made(rows, positions, watermark))
            return
        if self.router is None:
            # A whole batch to one instance, the watermark to all: rows of one batch stay together.
            chosen = self.next_target
            self.next_target = (chosen + 1) % len(targets)
            self.sent[targets[chosen]] += count
            for target in targets:
                emit(
                    number,
                    target,
                    Batch(held, order, watermark) if target == targets[chosen] else Batch([], None, watermark),
                )
            return
        key_of = self.key_of
        assert key_of is not None  # a keyed edge leads to a keyed step
        try:
            shares = split_by_key(held, order, key_of, self.router, len(targets))
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            if not self.lenient or not isinstance(error, Exception):
                row = _first_bad(held, key_of, self.router)
                raise user_code_error(f"key_by of {self.step}", key_of, error, row) from error
            # One instance gets the rows whose key raises: there it raises again, under the step's own policy.
            shares = split_by_key(
                as_rows(held), listed(order), or_nothing(key_of, self.router), self.router, len(targets)
            )
        for target, (part, part_order) in enumerate(shares, targets.start):
            self.sent[target] += len(part)
            emit(number, target, _made(part, part_order, watermark))

    def send_waiting(self, watermark: Position, emit: Emit) -> None:
        """Send the rows that a side output has collected, with the watermark."""
        (rows, order), self.waiting = self.waiting, ([], [])
        self.send(rows, order if rows and order[0] is not None else None, watermark, emit)


def _made(held: Held, order: Order, watermark: Position) -> Batch:
    """Return a batch of an instance's output: rows in order give rows in order."""
    return Batch(held, order, watermark, 0, None, b"", True)


def or_nothing(key_of: KeyFunction, router: KeyRouter) -> KeyFunction:
    """Return a function row → key; where the key raises, it gives a constant key, so that all such rows go to one instance."""

    def key_or_nothing(row: Any) -> Any:
        try:
            key = key_of(row)
            router[key]
        except Exception:  # noqa: BLE001  the keyed step meets the same error again and reports it
            return 0
        return key

    return key_or_nothing


def _nothing(order: Order) -> Order:
    return None


def _times(order: Order) -> Order:
    if order is None or type(order) is not list:
        return order if order is None else order[:, 0]
    return [position[0] for position in order]


def _first_bad(held: Held, key_of: KeyFunction, router: KeyRouter) -> Any:
    """Return the row at which the key function raised."""
    row: Any = None
    try:
        for row in as_rows(held):
            router[key_of(row)]
    except (Exception, SystemExit):  # noqa: BLE001  the same error of user code again; only its row matters
        return row
    return None


class Outbox:
    """All outgoing edges of one instance.

    Args:
        plan: the application's plan.
        stage, index: the instance.
        key_functions: for each keyed edge the name of the keyed step, row → key, and whether its error policy drops rows.

    Attributes:
        watermark: the last one given.
        plan: the plan by which it sends.
    """

    __slots__ = ("_index", "_only", "_only_sent", "_only_target", "_routes", "_sides", "plan", "watermark")

    def __init__(
        self, plan: StagePlan, stage: int, index: int, key_functions: dict[int, tuple[str, KeyFunction, bool]]
    ) -> None:
        inner = plan.carries(stage)
        self.plan, self._index = plan, index
        routes: list[_OutgoingEdge] = []
        for edge in plan.outgoing(stage):
            step, key_of, lenient = key_functions.get(edge.index, ("", None, False))
            targets, owners = plan.targets(edge.index, index), plan.stages[edge.target].owners
            routes.append(_OutgoingEdge(edge, inner, targets, owners, step, key_of, lenient=lenient))
        self._routes = [route for route in routes if not route.edge.side]
        self._sides = {route.edge.side: route for route in routes if route.edge.side}
        self._only: int | None = None
        self._only_target = self._only_sent = 0
        self._find_only()
        self.watermark: Position = START

    def _find_only(self) -> None:
        routes = self._routes
        alone = len(routes) == 1 and not self._sides and len(routes[0].targets) == 1 and routes[0].order_of is None
        self._only = routes[0].number if alone else None
        self._only_target = routes[0].targets.start if alone else 0

    def retarget(self, plan: StagePlan) -> None:
        """Send the following rows by another plan: to the instances of new generations, by their tables.

        The caller has sent the barrier that announces the plan to the previous instances.
        """
        before, self.plan = self.plan, plan
        self._note_only()
        for route in (*self._routes, *self._sides.values()):
            target = plan.stages[route.edge.target]
            if target.generation != before.stages[target.index].generation:
                route.retarget(plan.targets(route.number, self._index), target.owners)
        self._find_only()

    def _note_only(self) -> None:
        """Add the rows that bypassed the only route to its count."""
        if self._only is not None:
            self._routes[0].sent[self._only_target] += self._only_sent
            self._only_sent = 0

    def inherit(self, sent: Iterable[tuple[int, int, int]]) -> None:
        """Add the counts of rows that an instance of an earlier generation had sent."""
        by_edge = {route.number: route for route in (*self._routes, *self._sides.values())}
        for edge, _, rows in sent:
            by_edge[edge].gone += rows

    def send(self, held: Held, order: Order, watermark: Position, emit: Emit) -> None:
        """Send records and watermark to all edges; do nothing when neither is new."""
        if watermark > self.watermark:
            self.watermark = watermark
        elif not len(held):
            return
        only = self._only
        if only is not None:  # the usual case, without a loop
            self._only_sent += len(held)
            emit(only, self._only_target, Batch(held, order, watermark, 0, None, b"", True))  # `_made` without the call
            return
        for route in self._routes:
            route.send(held, order, watermark, emit)
        for route in self._sides.values():
            route.send_waiting(watermark, emit)

    def pass_on(self, batch: Batch, emit: Emit) -> None:
        """Send a batch like `send`, unchanged where possible."""
        only = self._only
        if only is None:
            self.send(batch.held, batch.order, batch.watermark, emit)
            return
        count = len(batch.held)
        if batch.watermark > self.watermark:
            self.watermark = batch.watermark
        elif not count:
            return
        self._only_sent += count
        emit(only, self._only_target, batch)

    @property
    def only(self) -> int | None:
        """Return the edge over which everything leaves unchanged, to one instance; None when there is no such edge."""
        return self._only

    def count_bypassed(self, rows: int) -> None:
        """Count rows that a caller put into the only channel directly."""
        self._only_sent += rows

    def edge_of(self, side: str) -> int | None:
        """Return the edge of this side output ("step/tag"); None when no step reads it."""
        route = self._sides.get(side)
        return None if route is None else route.number

    def put_aside(self, side: str, rows: list[Any], order: list[Any]) -> None:
        """Store rows for a side output until the next `send`, before its watermark; drop them when no step reads it."""
        route = self._sides.get(side)
        if route is not None:
            route.waiting[0].extend(rows)
            route.waiting[1].extend(order)

    def send_sides(self, emit: Emit) -> None:
        """Send the rows that side outputs have collected: before a barrier, and before the snapshot there."""
        for route in self._sides.values():
            if route.waiting[0]:
                route.send_waiting(self.watermark, emit)

    def send_barrier(self, barrier: int, emit: Emit, change: bytes = b"") -> None:
        """Send a barrier over all channels, behind all rows sent. `change`: the plan that holds behind it.

        The caller has sent what side outputs have collected (`send_sides`). A barrier never carries the end of the input: that
        follows it, or has left.
        """
        watermark = START if is_final(self.watermark) else self.watermark
        for route in (*self._routes, *self._sides.values()):
            for target in route.targets:
                emit(route.number, target, Batch([], None, watermark, barrier, None, change))

    def sent(self) -> list[tuple[int, int, int]]:
        """Return (edge, target, rows sent) of each channel; those of earlier generations together as `GONE`."""
        self._note_only()
        routes = (*self._routes, *self._sides.values())
        present = [(route.number, target, rows) for route in routes for target, rows in route.sent.items()]
        return present + [(route.number, GONE, route.gone) for route in routes if route.gone]

    def snapshot(self) -> SentCounts:
        """Return the last watermark, the next targets in turn, and the counts of rows sent, as plain data."""
        return self.watermark, [route.next_target for route in self._routes], self.sent()

    @property
    def end(self) -> Position | None:
        """Return the watermark that ended all outputs; None: rows may follow."""
        return self.watermark if is_final(self.watermark) else None

    def restore(self, plain: SentCounts) -> None:
        """Restore a snapshot."""
        self.watermark, next_targets, sent = plain
        for route, next_target in zip(self._routes, next_targets, strict=True):
            route.next_target = next_target
        self._only_sent = 0
        for route in (*self._routes, *self._sides.values()):
            route.gone = 0
        by_edge = {route.number: route for route in (*self._routes, *self._sides.values())}
        for edge, target, rows in sent:
            route = by_edge[edge]
            if target in route.sent:
                route.sent[target] = rows
            else:  # of a generation that ended before the snapshot
                route.gone += rows
