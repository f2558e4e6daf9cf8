"""`DeadLetterWriter`: dead letters that can travel. A record that raised may not have its declared type, which must not end the
run.
"""

from collections.abc import Callable
from typing import Any, Final

from agiledart_dataflow.data.batch import Batch
from agiledart_dataflow.data.batch_codec import BatchCodec
from agiledart_dataflow.data.position import START
from agiledart_dataflow.data.rows import DeadLetter
from agiledart_dataflow.runtime.error_reports import own_frames
from agiledart_dataflow.user_code.user_errors import NO_RECORD, user_code_error, without_surrogates
from agiledart_kernel.errors import AgileDartError

CANNOT_TRAVEL: Final = "skipped, because it does not have its declared type and cannot travel as dead letter"
"""Treatment of a record for which no letter could be written."""


class DeadLetterWriter:
    """Writer of the dead letters of one instance.

    Args:
        letter_type: edge of a side output → the type of its letters.
    """

    def __init__(self, letter_type: Callable[[int], Any]) -> None:
        self._letter_type = letter_type
        self._codecs: dict[int, BatchCodec] = {}

    def letter(
        self, edge: int, step: str, function: Callable[..., Any] | None, record: Any, error: Exception
    ) -> DeadLetter[Any] | None:
        """Return the letter for a record; None when no other process could read it."""
        text = str(user_code_error(step, function, error, NO_RECORD))
        letter = DeadLetter(
            record, step, without_surrogates(text), without_surrogates("\n".join(own_frames(error.__traceback__)))
        )
        codec = self._codecs.get(edge)
        if codec is None:
            codec = self._codecs[edge] = BatchCodec(self._letter_type(edge), "rows")
        try:
            codec.decode(codec.encode(Batch([letter], None, START)))
        except (AgileDartError, TypeError, ValueError, OverflowError, RecursionError):
            return None
        return letter
