"""What instances of the virtual pipeline say to each other: rows and barriers; what they save. Tags from 900: no real node ever
sends one.
"""

import msgspec

from agiledart_kernel.machine import Message
from agiledart_recovery.wire.names import Party
from agiledart_recovery.wire.value import Plan

Position = tuple[int, int]
END: Position = (1 << 60, 0)
START: Position = (-1, 0)


class Row(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A row: its place in the order (time, source), its number at the source, what it says, and what stages counted."""

    at: Position
    number: int
    salt: int
    counts: tuple[int, ...] = ()


class Barrier(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Barrier of an epoch; nothing at or below `mark` follows."""

    epoch: int
    mark: Position
    after: Plan | None


class Rows(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Rows in order; nothing at or below `mark` follows."""

    rows: tuple[Row, ...]
    mark: Position


class Inlet(msgspec.Struct, frozen=True, array_like=True):
    """How far one input of an instance is."""

    source: Party
    mark: Position
    passed: int
    ended: bool


class Memory(msgspec.Struct, frozen=True, array_like=True):
    """All that an instance knows: a count for each of its groups, frontier, rows that wait; an old instance's inputs, too.

    As an element; at the barrier of a change what it hands over. `others`: of a stage that joins, see `tables.joins`.
    """

    counts: dict[int, int]
    frontier: Position
    held: tuple[Row, ...]
    inlets: tuple[Inlet, ...] = ()
    others: dict[int, int] = {}


class Frame(Message, frozen=True, gc=False, tag=900):
    """The n-th thing that one party says to another in a life."""

    life: int
    source: Party
    target: Party
    number: int
    body: Rows | Barrier


class FrameAck(Message, frozen=True, gc=False, tag=901):
    """Everything up to this number has been taken."""

    life: int
    source: Party
    target: Party
    number: int
