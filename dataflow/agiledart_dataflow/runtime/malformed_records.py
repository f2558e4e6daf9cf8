"""`MalformedRecords`: reports to users of a source's malformed records: the first few of each reason, then the totals."""

from typing import Any, Final

from agiledart_dataflow.data.rows import DeadLetter
from agiledart_dataflow.plan.connectors import REPORTED_PER_REASON
from agiledart_dataflow.user_code.user_errors import without_surrogates

_REASON_LENGTH: Final = 40
_MAX_REASONS: Final = 64
"""Reasons are labels of counters; a check that invents ever new ones is cut off."""

_ROW_LENGTH: Final = 200

_LETTER_LENGTH: Final = 65_536
"""Characters of a row in a dead letter."""

MAX_LETTERS: Final = 10_000
"""Dead letters that may wait while the outputs are blocked; further malformed records are only counted."""


class MalformedRecords:
    """Malformed records of one source.

    Args:
        name: name of the source.

    Attributes:
        reasons: number of records, by reason.
        letters: letters that have not left yet; None: no side output takes them.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._texts: list[str] = []
        self._has_reported_rest = self._has_reported_overflow = False
        self.reasons: dict[str, int] = {}
        self.letters: list[DeadLetter[str]] | None = None

    def put_aside(self, record: str, text: str) -> None:
        """Store a malformed record and its defect as a dead letter, where a side output takes them."""
        if self.letters is None:
            return
        if len(self.letters) < MAX_LETTERS:
            self.letters.append(DeadLetter(record, self._name, text, ""))
        elif not self._has_reported_overflow:
            self._has_reported_overflow = True
            self.add_notes((f"{MAX_LETTERS:,} dead letters wait to be sent; more malformed records are counted only",))

    def take_letters(self) -> list[DeadLetter[str]]:
        """Return the dead letters that may leave now."""
        if not self.letters:
            return []
        letters, self.letters = self.letters, []
        self._has_reported_overflow = False
        return letters

    def count(self, reason: str, count: int = 1) -> str:
        """Count by a reason; return the word it is counted by."""
        reason = without_surrogates(reason[:_REASON_LENGTH])
        if reason not in self.reasons and len(self.reasons) >= _MAX_REASONS:
            reason = "other"
        self.reasons[reason] = self.reasons.get(reason, 0) + count
        return reason

    def refuse(self, reason: str, row: Any, detail: str = "") -> str:
        """Count a row that the source's `check` or clock rejected; return the text reported of it.

        Args:
            reason: word to count it by.
            row: as it was read.
            detail: description of the fault; "": the word says it.
        """
        word = self.count(reason)
        is_reported = self.reasons[word] <= REPORTED_PER_REASON
        if not is_reported and self.letters is None:
            return ""
        try:
            text = repr(row)
        except Exception:  # noqa: BLE001  a user's __repr__ may raise anything
            text = "(the row cannot be shown)"
        self.put_aside(without_surrogates(text[:_LETTER_LENGTH]), detail or word)
        if not is_reported:
            return ""
        text = (
            f"{detail or word}: {without_surrogates(text if len(text) <= _ROW_LENGTH else text[:_ROW_LENGTH] + ' …')}"
        )
        self.add_notes((text,))
        return text

    def add_notes(self, notes: tuple[str, ...]) -> None:
        """Add the reader's notes for users."""
        self._texts += [f"{self._name}: {note}" for note in notes]

    def take(self) -> list[str]:
        """Return the texts to report now."""
        texts, self._texts = self._texts, []
        return texts

    def rest(self, lines: int) -> list[str]:
        """Return the totals at the end, unless all malformed records were reported one by one."""
        has_unreported = any(count > REPORTED_PER_REASON for count in self.reasons.values())
        if not has_unreported or self._has_reported_rest:
            return []
        self._has_reported_rest = True
        totals = ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.items())
        return [f"{self._name}: {sum(self.reasons.values()):,} of {lines:,} records malformed: {totals}"]
