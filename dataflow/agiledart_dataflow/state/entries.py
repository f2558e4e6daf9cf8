"""`Entry`: what a keyed step remembers of one key; `EntryCodec`: its bytes, which survive an upgrade of the state's type.

The bytes of an entry begin with the number of their format. Inside, a dataclass or Struct travels by the names of its
fields and a NamedTuple by their order, so a field that was added later with a default is filled in; a type that does not
fit raises `StateFormatError`, which names both.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.user_code.user_errors import NO_RECORD, shown, user_code_error
from agiledart_kernel.errors import OperationFailed, UserCodeError

FORMAT: Final = 1
"""Of the bytes of an entry and of a snapshot of a key group; older ones are upgraded when read, newer ones refused."""

NOTHING: Any = object()
"""In place of the state of a key that has none."""


class StateFormatError(OperationFailed):
    """Saved state cannot be read by this code; the message says of which step and why."""


class NamedTimer(msgspec.Struct, array_like=True):
    """A timer that can be moved.

    Attributes:
        wanted: where it shall fire; None when it was cancelled.
        queued: at which position the queue of timers holds it; at or before `wanted`.
        payload: for `on_timer`.
    """

    wanted: Position | None
    queued: Position
    payload: Any


class Entry:
    """One key: its state, the number of its next timer, how many of its timers wait in the queue, the named ones."""

    __slots__ = ("named", "number", "state", "waiting")

    def __init__(self) -> None:
        self.state: Any = NOTHING
        self.number = 0
        self.waiting = 0
        self.named: dict[str, NamedTimer] | None = None


Timer = tuple[Position, Any, Any, str]
"""(position, key, payload, name or ""); a named one's payload stands in its entry."""

PlainEntry = tuple[Any, bool, Any, int, int, dict[str, NamedTimer]]
PlainGroup = tuple[int, list[PlainEntry], list[Timer]]


class EntryCodec:
    """Entries as plain data and as bytes.

    Args:
        step: for messages.
        key_type, state_type: the types by which bytes are read again.
        to_plain, from_plain: of the operator, for a state that is no plain data.
    """

    def __init__(
        self,
        step: str,
        key_type: Any,
        state_type: Any,
        to_plain: Callable[[Any], Any],
        from_plain: Callable[[Any], Any],
    ) -> None:
        self._step = step
        self._to_plain, self._from_plain = to_plain, from_plain
        self._encoder = msgspec.msgpack.Encoder()
        entry = generic(tuple, key_type, bool, state_type | None, int, int, dict[str, NamedTimer])
        timer = generic(tuple, Position, key_type, Any, str)
        self.plain_type = generic(tuple, int, generic(list, entry), generic(list, timer))
        self._entry_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(generic(tuple, int, entry))
        self._group_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(self.plain_type)
        self._timer_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(timer)

    def plain(self, key: Any, entry: Entry) -> PlainEntry:
        """An entry as plain data."""
        has_state = entry.state is not NOTHING
        state = self._to_plain(entry.state) if has_state else None
        return key, has_state, state, entry.number, entry.waiting, entry.named or {}

    def entry(self, plain: PlainEntry) -> tuple[Any, Entry]:
        """(key, entry) of plain data whose types are restored."""
        key, has_state, state, number, waiting, named = plain
        entry = Entry()
        if has_state:
            entry.state = self._from_plain(state)
        entry.number, entry.waiting, entry.named = number, waiting, named or None
        return key, entry

    def encode(self, key: Any, entry: Entry) -> bytes:
        """The bytes of an entry. Raises `UserCodeError` for a state that is no plain data; names the key."""
        try:
            return self._encoder.encode((FORMAT, self.plain(key, entry)))
        except Exception as error:  # a user's `to_plain` may raise anything
            raise self._blamed("state", key, error) from error

    def decode(self, data: bytes) -> tuple[Any, Entry]:
        """(key, entry) of bytes. Raises `StateFormatError`."""
        return self.entry(self._read(self._entry_decoder, data)[1])

    def encode_group(self, entries: list[PlainEntry], timers: list[Timer]) -> bytes:
        """The bytes of a key group."""
        return self._encoder.encode((FORMAT, entries, timers))

    def decode_group(self, data: bytes) -> PlainGroup:
        """Entries and timers of a key group as plain data. Raises `StateFormatError`."""
        group: PlainGroup = self._read(self._group_decoder, data)
        return group

    def encode_timer(self, timer: Timer) -> bytes:
        """The bytes of a timer; they never leave the store that wrote them. Raises as `encode` does, for its payload."""
        try:
            return self._encoder.encode(timer)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._blamed("timer", timer[1], error) from error

    def decode_timer(self, data: bytes) -> Timer:
        """The timer of bytes."""
        timer: Timer = self._timer_decoder.decode(data)
        return timer

    def _blamed(self, what: str, key: Any, error: Exception) -> UserCodeError:
        """The key is named here, for by now the step treats another one's record."""
        return user_code_error(f"{self._step}, {what} of key {shown(key)}", None, error, NO_RECORD)

    def _read(self, decoder: "msgspec.msgpack.Decoder[Any]", data: bytes) -> Any:
        try:
            read = decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
            raise StateFormatError(
                f"the saved state of {self._step} is not of the type that the code has now: {error}; give fields that were"
                " added a default, or name the step anew"
            ) from None
        if read[0] > FORMAT:
            raise StateFormatError(
                f"the saved state of {self._step} has format {read[0]}; this version reads up to {FORMAT}"
            )
        return read
