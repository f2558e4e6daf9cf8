"""Malformed records: counted by reason, and the first few of each reason described with place, field and value."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from agiledart_dataflow.plan.connectors import REPORTED_PER_REASON
from agiledart_dataflow.user_code.user_errors import without_surrogates
from agiledart_kernel.limits import MAX_LINE_BYTES
from agiledart_kernel.text import harmless

_MAX_SHOWN_CHARACTERS: Final = 60
"""Characters of a value that are shown."""

_MAX_KEPT_CHARACTERS: Final = 65_536
"""Characters of a record that a dead letter keeps."""

COLUMNS, NUMBER, TIME, CUT = "columns", "number", "time", "cut"
"""Reasons of text: the number of columns or a line too long; no number; no time; a connection that ended within a record."""

FORM, FIELD, TYPE, SIZE = "form", "field", "type", "size"
"""Reasons of records with names: not the format at all; a field is missing; its value is another thing; far too large."""

ENCODING: Final = "encoding"
"""Reason of bytes that are not of the stated encoding."""

TOO_LONG: Final = f"a line of more than {MAX_LINE_BYTES:,} bytes"


class MalformedPart(NamedTuple):
    """One malformed part of a payload.

    Attributes:
        place: where it stands in the payload: `[3]` in an array, `:3` in lines.
        record: the part, as it came.
        error: its fault.
    """

    place: str
    record: bytes | str
    error: "MalformedError"


class MalformedError(ValueError):
    """A record cannot be read.

    Attributes:
        reason: word to count it by.
        text: description of the fault; begins with the field, if there is one.
    """

    def __init__(self, reason: str, text: str = "") -> None:
        super().__init__(text or reason)
        self.reason = reason
        self.text = text or reason


class PartlyMalformedError(MalformedError):
    """A payload holds several records, and some are malformed.

    Attributes:
        rows: of the others.
        parts: the malformed ones.
    """

    def __init__(self, rows: list[Any], parts: list[MalformedPart]) -> None:
        super().__init__(parts[0].error.reason, f"{parts[0].place} {parts[0].error.text}")
        self.rows, self.parts = rows, parts


def bounded_repr(value: Any) -> str:
    """A value as users may see it, cut to a line's part."""
    if isinstance(value, bytes | bytearray):
        value = bytes(value[: 4 * _MAX_SHOWN_CHARACTERS]).decode("utf-8", "replace")
    text = repr(value if not isinstance(value, str) else value[: 4 * _MAX_SHOWN_CHARACTERS])
    return without_surrogates(text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 2]} …")


class MalformedExamples:
    """Descriptions of the first malformed records of each reason of one reader; a subscriber gets all of them as they come."""

    __slots__ = ("_reported", "_take", "_texts")

    def __init__(self) -> None:
        self._reported: dict[str, int] = {}
        self._texts: list[str] = []
        self._take: Callable[[str, str], None] | None = None

    def on_malformed(self, take: Callable[[str, str], None]) -> None:
        """Call `take` with each malformed record from now on: the record as a text, and what is wrong with it."""
        self._take = take

    def wants_more(self, reasons: Iterable[str]) -> bool:
        """Return whether one of these reasons has too few examples, or a subscriber wants all records."""
        return self._take is not None or any(self._reported.get(reason, 0) < REPORTED_PER_REASON for reason in reasons)

    def add(self, reason: str, place: str, text: str, record: bytes | str | None = "") -> None:
        """A malformed record: where it stands, what is wrong with it, and itself; None where it is no record that was lost."""
        if self._take is not None and record is not None:
            self._take(as_text(record), harmless(without_surrogates(f"{place} {text}")))
        reported = self._reported.get(reason, 0)
        if reported < REPORTED_PER_REASON:
            self._reported[reason] = reported + 1
            self._texts.append(harmless(without_surrogates(f"{place} {text}")))

    def note(self, text: str) -> None:
        """Something else that users should know of what is read."""
        self._texts.append(text)

    def take(self) -> tuple[str, ...]:
        """Return and forget the descriptions collected so far."""
        if not self._texts:
            return ()
        texts, self._texts = self._texts, []
        return tuple(texts)


def as_text(record: bytes | str) -> str:
    """Return a record as a dead letter holds it: bytes that are not UTF-8 are escaped, long texts are cut."""
    if isinstance(record, str):
        text = without_surrogates(record[: _MAX_KEPT_CHARACTERS + 1])
    else:
        text = bytes(record[: 4 * _MAX_KEPT_CHARACTERS + 4]).decode("utf-8", "backslashreplace")
    return text if len(text) <= _MAX_KEPT_CHARACTERS else f"{text[:_MAX_KEPT_CHARACTERS]} …"


def refuse(
    malformed: dict[str, int],
    error: MalformedError,
    examples: MalformedExamples,
    place: Callable[[], str],
    record: bytes | str,
) -> None:
    """Count a malformed record, and tell of it when it is among the first."""
    malformed[error.reason] = malformed.get(error.reason, 0) + 1
    if examples.wants_more((error.reason,)):
        examples.add(error.reason, place(), error.text, record)
