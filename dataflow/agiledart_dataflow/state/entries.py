"""`KeyEntry`: memory of a keyed step about one key; `EntryCodec`: its bytes, which survive an upgrade of the state's type."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from agiledart_dataflow.data.position import Position
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.state.plain_codec import PlainCodec, begin_of
from agiledart_dataflow.user_code.user_errors import NO_RECORD, bounded_repr, user_code_error
from agiledart_kernel.errors import UserCodeError

_USUAL = begin_of(is_wide=False)

NOTHING: Any = object()
"""Placeholder for the state of a key that has none."""


class NamedTimer(msgspec.Struct, array_like=True):
    """Timer that can be moved.

    Attributes:
        wanted: position at which it fires; None when it was cancelled.
        queued: position at which the queue of timers holds it; at or before `wanted`.
        payload: for `on_timer`.
    """

    wanted: Position | None
    queued: Position
    payload: Any


class KeyEntry:
    """Memory about one key: its state, the number of its next timer, the number of its queued timers, the named timers."""

    __slots__ = ("named", "number", "state", "waiting")

    def __init__(self) -> None:
        self.state: Any = NOTHING
        self.number = 0
        self.waiting = 0
        self.named: dict[str, NamedTimer] | None = None


Timer = tuple[Position, Any, Any, str]
"""(position, key, payload, name or ""); the payload of a named timer is in its entry."""

PlainEntry = tuple[Any, bool, Any, int, int, dict[str, NamedTimer]]
PlainGroup = tuple[list[PlainEntry], list[Timer]]
PlainChanges = tuple[list[PlainEntry], list[Any], list[Timer]]
"""(entries, keys that are gone, all timers of both)."""


class EntryCodec:
    """Codec of entries as plain data and as bytes.

    Args:
        step: for messages.
        key_type, state_type: the types by which bytes are read again.
        to_plain, from_plain: of the operator, for a state that is not plain data.
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
        self._entry_codec = PlainCodec(step, lambda: entry)
        self._group_codec = PlainCodec(step, lambda: generic(tuple, generic(list, entry), generic(list, timer)))
        self._changes_codec = PlainCodec(
            step, lambda: generic(tuple, generic(list, entry), generic(list, key_type), generic(list, timer))
        )
        self._head_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
            generic(tuple, int, int, generic(tuple, key_type, bool, msgspec.Raw, msgspec.Raw, int, msgspec.Raw))
        )
        self._timer_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(timer)

    def plain(self, key: Any, entry: KeyEntry) -> PlainEntry:
        """Return an entry as plain data."""
        has_state = entry.state is not NOTHING
        state = self._to_plain(entry.state) if has_state else None
        return key, has_state, state, entry.number, entry.waiting, entry.named or {}

    def entry(self, plain: PlainEntry) -> tuple[Any, KeyEntry]:
        """Return (key, entry) of plain data whose types are restored."""
        key, has_state, state, number, waiting, named = plain
        entry = KeyEntry()
        if has_state:
            entry.state = self._from_plain(state)
        entry.number, entry.waiting, entry.named = number, waiting, named or None
        return key, entry

    def encode(self, key: Any, entry: KeyEntry) -> bytes:
        """Return the bytes of an entry. Raises `UserCodeError` with the key's name for a state that is not plain data."""
        try:
            return self._entry_codec.encode(self.plain(key, entry))
        except Exception as error:  # a user's `to_plain` may raise anything
            cause = error.__cause__ if isinstance(error, UserCodeError) else error
            raise self._blamed("state", key, cause or error) from error

    def decode(self, data: bytes) -> tuple[Any, KeyEntry]:
        """Return (key, entry) of bytes. Raises `StateFormatError`."""
        return self.entry(self._entry_codec.decode(data))

    def item_of(self, data: bytes) -> tuple[Any, int, tuple[bytes, bool]]:
        """Return (key, number of queued timers, encoded as `encode_entries`) of an entry's bytes that this process wrote."""
        if data.startswith(_USUAL):
            _, _, (key, _, _, _, waiting, _) = self._head_decoder.decode(data)
            return key, waiting, (data[len(_USUAL) :], False)
        key, entry = self.decode(data)
        return key, entry.waiting, self.encode_entries([(key, entry)])

    def encode_group(self, entries: Mapping[Any, KeyEntry], timers: list[Timer]) -> bytes:
        """Return the bytes of a key group. Raises as `encode` and `encode_timer` do."""
        try:
            return self._group_codec.encode(([self.plain(key, entry) for key, entry in entries.items()], timers))
        except Exception:
            self._find_fault(entries, timers)
            raise

    def _find_fault(self, entries: Mapping[Any, KeyEntry], timers: list[Timer]) -> None:
        for key, entry in entries.items():
            self.encode(key, entry)  # raises for the key at fault
        for timer in timers:
            self.encode_timer(timer)

    def encode_entries(self, items: list[tuple[Any, KeyEntry]]) -> tuple[bytes, bool]:
        """Return entries concatenated as in a group (`PlainCodec.encode_items`). Raises as `encode` does."""
        try:
            return self._entry_codec.encode_items([self.plain(key, entry) for key, entry in items])
        except Exception:
            self._find_fault(dict(items), [])
            raise

    def encode_timers(self, timers: list[Timer]) -> tuple[bytes, bool]:
        """Return timers concatenated as in a group. Raises as `encode_timer` does."""
        try:
            return self._entry_codec.encode_items(timers)
        except Exception:
            self._find_fault({}, timers)
            raise

    def encode_keys(self, keys: list[Any]) -> tuple[bytes, bool]:
        """Return keys concatenated as among changes."""
        return self._entry_codec.encode_items(keys)

    def decode_group(self, data: bytes) -> PlainGroup:
        """Return the entries and timers of a key group as plain data. Raises `StateFormatError`."""
        group: PlainGroup = self._group_codec.decode(data)
        return group

    def encode_changes(self, entries: Mapping[Any, KeyEntry], gone: list[Any], timers: list[Timer]) -> bytes:
        """Return the bytes of some keys of a group and of their timers. Raises as `encode_group` does."""
        try:
            plain = [self.plain(key, entry) for key, entry in entries.items()]
            return self._changes_codec.encode((plain, gone, timers))
        except Exception:
            self._find_fault(entries, timers)
            raise

    def decode_changes(self, data: bytes) -> PlainChanges:
        """Return the arguments of `encode_changes` as plain data. Raises `StateFormatError`."""
        changes: PlainChanges = self._changes_codec.decode(data)
        return changes

    def encode_timer(self, timer: Timer) -> bytes:
        """Return the bytes of a timer; they never leave the store that wrote them. Raises as `encode` does, for its payload."""
        try:
            return self._encoder.encode(timer)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._blamed("timer", timer[1], error) from error

    def decode_timer(self, data: bytes) -> Timer:
        """Return the timer of bytes."""
        timer: Timer = self._timer_decoder.decode(data)
        return timer

    def _blamed(self, what: str, key: Any, error: BaseException) -> UserCodeError:
        """Return the error for a key's state; it names the key, since the step processes another key's record by now."""
        return user_code_error(f"{self._step}, {what} of key {bounded_repr(key)}", None, error, NO_RECORD)
