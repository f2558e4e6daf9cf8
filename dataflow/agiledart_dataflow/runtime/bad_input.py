"""`BadInput`: what users are told of records of a source that are none: the first few of each reason, then how many in all."""

from typing import Any, Final

from agiledart_dataflow.plan.connectors import TOLD_OF_A_REASON
from agiledart_dataflow.user_code.user_errors import sayable

_REASON_LENGTH: Final = 40
_MAX_REASONS: Final = 64
"""Reasons are labels of counters; a check that makes up new ones for ever is cut off."""

_ROW_LENGTH: Final = 200


class BadInput:
    """The malformed records of one source.

    Args:
        name: of the source.

    Attributes:
        reasons: how many there were, by reason.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._texts: list[str] = []
        self._rest_told = False
        self.reasons: dict[str, int] = {}

    def count(self, reason: str, count: int = 1) -> str:
        """Count by a reason; returns the word it is counted by."""
        reason = sayable(reason[:_REASON_LENGTH])
        if reason not in self.reasons and len(self.reasons) >= _MAX_REASONS:
            reason = "other"
        self.reasons[reason] = self.reasons.get(reason, 0) + count
        return reason

    def refuse(self, reason: str, row: Any) -> str:
        """Count a row that was read and is malformed by the word of the source's `check` or clock; returns what is told of it."""
        word = self.count(reason)
        if self.reasons[word] > TOLD_OF_A_REASON:
            return ""
        try:
            text = repr(row)
        except Exception:  # noqa: BLE001  a user's __repr__ may raise anything
            text = "(the row cannot be shown)"
        text = f"{word}: {sayable(text if len(text) <= _ROW_LENGTH else text[:_ROW_LENGTH] + ' …')}"
        self.hear((text,))
        return text

    def hear(self, notes: tuple[str, ...]) -> None:
        """What the reader wants users to know."""
        self._texts += [f"{self._name}: {note}" for note in notes]

    def take(self) -> list[str]:
        """What there is to tell now."""
        texts, self._texts = self._texts, []
        return texts

    def rest(self, lines: int) -> list[str]:
        """At the end: how many there were, when not all have been told."""
        untold = any(count > TOLD_OF_A_REASON for count in self.reasons.values())
        if not untold or self._rest_told:
            return []
        self._rest_told = True
        told = ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.items())
        return [f"{self._name}: {sum(self.reasons.values()):,} of {lines:,} records malformed: {told}"]
