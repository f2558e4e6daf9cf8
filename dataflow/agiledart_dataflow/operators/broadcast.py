"""`BroadcastStep`: a keyed step whose second input reaches every instance and changes the value that all instances share."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from agiledart_dataflow.data.position import Position
from agiledart_dataflow.operators.base import OnOperatorError, Output
from agiledart_dataflow.operators.keyed import BroadcastOperator
from agiledart_dataflow.operators.keyed_step import KeyedStep
from agiledart_dataflow.state.async_snapshot import AsyncSnapshot
from agiledart_dataflow.state.dirty_keys import DirtyKeys, StateChanges
from agiledart_dataflow.state.key_groups import Division
from agiledart_dataflow.state.plain_codec import PlainCodec
from agiledart_dataflow.state.store import KeyedStore


class BroadcastStep:
    """Runner of a `BroadcastOperator`: rows of branch 1 go to `on_broadcast`, all others to the keyed step.

    Rows before a broadcast row, and timers at or before its position, do not see its effect. The shared value has no
    key group.

    Args:
        name, key_of, store, options: as for a `KeyedStep`.
        operator: the user's operator.
        codec: encodes the shared value.
    """

    division: ClassVar[Division] = "by group"

    def __init__(
        self,
        name: str,
        key_of: Callable[[Any], Any],
        operator: BroadcastOperator[Any, Any, Any, Any, Any, Any],
        store: KeyedStore,
        codec: PlainCodec,
        **options: Any,
    ) -> None:
        self._step = KeyedStep(name, (key_of,), operator, store, **options)
        self._step.context.shared = operator.initial_shared()
        self._operator = operator
        self._codec = codec
        self._on_operator_error: OnOperatorError | None = options.get("on_operator_error")
        self.inner = self._step
        self.name = name
        self.counts = self._step.counts
        self.sides = self._step.sides
        self.function: Callable[..., Any] | None = operator.on_record

    def run(self, rows: list[Any], positions: list[Position], watermark: Position) -> Output:
        out: list[Any] = []
        at: list[Position] = []
        start = 0
        for stop, position in enumerate(positions):
            if not position[-1]:
                continue
            self._pass(rows[start:stop], positions[start:stop], position, out, at)
            row = rows[stop]
            self.counts.rows_in += 1
            self._take_broadcast_row(row, position)
            start = stop + 1
        self._pass(rows[start:], positions[start:], watermark, out, at)
        return out, at

    def _take_broadcast_row(self, row: Any, position: Position) -> None:
        """Take a row of the broadcast stream. A change that `on_broadcast` made before it raised stays, alike at every instance."""
        self.function = self._operator.on_broadcast
        try:
            self._operator.on_broadcast(row, self._step.context.shared)
        except Exception as error:
            if self._on_operator_error is None:
                raise
            self._on_operator_error(error, row, position)
        else:
            self.counts.taken += 1
        self.function = self._operator.on_record

    def _pass(
        self, rows: list[Any], positions: list[Position], watermark: Position, out: list[Any], at: list[Position]
    ) -> None:
        new_rows, new_at = self._step.run(rows, positions, watermark)
        out += new_rows
        at += new_at

    @property
    def state_keys(self) -> int:
        return self._step.state_keys

    def groups(self) -> list[int]:
        return self._step.groups()

    def snapshot_group(self, group: int) -> bytes:
        return self._step.snapshot_group(group)

    def restore_group(self, group: int, data: bytes) -> None:
        self._step.restore_group(group, data)

    def drop_group(self, group: int) -> None:
        self._step.drop_group(group)

    def take_dirty_keys(self) -> DirtyKeys | None:
        return self._step.take_dirty_keys()

    def changes(self, keys: DirtyKeys) -> StateChanges:
        return self._step.changes(keys)

    def begin_snapshot(
        self, lists: Sequence[DirtyKeys] | None, waste: Iterable[DirtyKeys] = ()
    ) -> AsyncSnapshot | None:
        return self._step.begin_snapshot(lists, waste)

    def apply(self, changes: StateChanges) -> None:
        self._step.apply(changes)

    def snapshot_rest(self) -> bytes:
        return self._codec.encode(self._step.context.shared)

    def restore_rest(self, data: bytes) -> None:
        self._step.context.shared = self._codec.decode(data)
