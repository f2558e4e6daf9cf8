"""Restore of a step's state from another run: the key groups of one step, by its name; never rows, channels or counts.

An instance takes the state of the keys that it owns, and the state that belongs to no key. So the topology around the step may be
another one, and its number of instances, too. Rows that wait in a merge or at an output mean something among their channels only: a
run with such rows (`rows_waiting`) can be restored whole into the same topology, or not at all.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from agiledart_dataflow.data.partitioning import Owners
from agiledart_dataflow.state.dirty_keys import Increment
from agiledart_dataflow.state.key_groups import OperatorState, StateSnapshot, restore_state
from agiledart_dataflow.state.snapshot_reader import Pieces, restore_groups

_PARTS: msgspec.msgpack.Decoder[tuple[Any, Any, Any, Any, Any]] = msgspec.msgpack.Decoder(
    tuple[Any, msgspec.Raw, msgspec.Raw, msgspec.Raw, msgspec.Raw]
)
_FIELDS: msgspec.msgpack.Decoder[list[msgspec.Raw]] = msgspec.msgpack.Decoder(list[msgspec.Raw])
_INSTANCE_FIELDS, _SOURCE_OUTBOX, _OUTBOX_FIELDS = 5, 6, 3

_STATE: msgspec.msgpack.Decoder[tuple[Any, StateSnapshot, Any, Any, Any]] = msgspec.msgpack.Decoder(
    tuple[msgspec.Raw, StateSnapshot, msgspec.Raw, msgspec.Raw, msgspec.Raw]
)

_INCREMENT: msgspec.msgpack.Decoder[tuple[Any, Increment, Any, Any, Any]] = msgspec.msgpack.Decoder(
    tuple[msgspec.Raw, Increment, msgspec.Raw, msgspec.Raw, msgspec.Raw]
)


def state_snapshot_in(snapshot: bytes) -> StateSnapshot:
    """Return the state in a whole snapshot of an instance, whatever its step. Raises msgspec.MsgspecError."""
    return _STATE.decode(snapshot)[1]


def increment_in(snapshot: bytes) -> Increment:
    """Return the state's changes in a snapshot that rests on another. Raises msgspec.MsgspecError."""
    return _INCREMENT.decode(snapshot)[1]


def rows_waiting(snapshot: bytes) -> int:
    """Return the number of rows in a snapshot that wait: to be taken in order, or at the outputs. Raises msgspec.MsgspecError.

    Args:
        snapshot: of an instance, or of a source.
    """
    fields = _FIELDS.decode(snapshot)
    if len(fields) > _INSTANCE_FIELDS:
        return _overtaken(fields[_SOURCE_OUTBOX])
    entered, _, sent, *_ = _PARTS.decode(snapshot)
    return _waiting_to_enter(entered) + _overtaken(sent)


def _overtaken(sent: msgspec.Raw) -> int:
    """Return the rows at an instance's outputs that the barrier of the snapshot overtook."""
    outbox = _FIELDS.decode(sent)
    return sum(entry[3] for entry in msgspec.msgpack.decode(outbox[3])) if len(outbox) > _OUTBOX_FIELDS else 0


def _waiting_to_enter(entered: Any) -> int:
    if len(entered) == 5:  # a merge: queues by channel, and what is released
        inputs, released = entered[0], entered[1]
        return len(released) + sum(len(batch[0]) for channel in inputs for batch in channel[5])
    inputs, waiting = entered[0], entered[1]
    return sum(len(batch[0]) for _, batch in waiting) + sum(len(batch[0]) for channel in inputs for batch in channel[6])


def restore_share(state: OperatorState, owners: Owners, index: int, chains: Sequence[Sequence[Pieces]]) -> None:
    """Fill the new state of an instance with its share of the state of all instances of a step.

    Args:
        state: of the instance, empty.
        owners, index: owner table of its stage, and its index.
        chains: of each instance of the other run a whole snapshot, and the increments after it.

    Raises:
        msgspec.MsgspecError: a chain is not made of snapshots.
        StateFormatError: the code cannot read it.
    """
    mine: list[tuple[int, bytes]] = []
    rests: list[bytes] = []
    for chain in chains:  # one at a time: an increment applies to the state of its own instance
        rest = state_snapshot_in(restore_groups(state, chain[0])).rest
        increments = [increment_in(b"".join(pieces)) for pieces in chain[1:]]
        rests.append(increments[-1].rest if increments else rest)
        state.restore_rest(rests[-1])
        for increment in increments:
            state.apply(increment.changes)
        mine += (
            (group, state.snapshot_group(group)) for group in state.groups() if not owners or owners[group] == index
        )
    if rests:
        restore_state(state, StateSnapshot(sorted(mine), rests[0]))
