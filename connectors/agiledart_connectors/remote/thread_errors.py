"""`ThreadErrors`: one rule for every error that leaves the work of a reader's thread, so that no thread ends unseen.

AgileDartError      the input ends with this reason
RetryLaterError     the origin is away: the work begins again after a back-off
OSError             the same
any other           a library's or our own fault: the work begins again likewise. After `MAX_UNEXPECTED` of them in a row,
                    without an answer of the origin between them, the input ends with the last one as its reason
"""

from typing import Final

from agiledart_kernel.errors import AgileDartError, OperationFailed

MAX_UNEXPECTED: Final = 5
"""Unexpected errors in a row that are tried again: with the usual back-off, about eight seconds."""


class RetryLaterError(Exception):
    """The other side is away, or asks for a pause; the text says which and why.

    Args:
        after: seconds that it asks for; None: the usual back-off.
        what: as of `ConnectionHealth.report_failure`.
    """

    def __init__(self, text: str, after: float | None = None, what: str = "") -> None:
        super().__init__(text)
        self.after, self.what = after, what


class ThreadErrors:
    """Decides what follows an error. Sans I/O.

    Args:
        name: of the origin, for users.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._unexpected = 0

    def on_answer(self) -> None:
        """The origin has answered."""
        self._unexpected = 0

    def verdict(self, error: BaseException) -> AgileDartError | RetryLaterError:
        """Return the reason with which the input ends, or the one for which the work is tried again."""
        if isinstance(error, AgileDartError | RetryLaterError):
            return error
        if isinstance(error, OSError):
            return RetryLaterError(f"{self._name} cannot be read ({(error.strerror or fault_text(error)).lower()})")
        self._unexpected += 1
        text = f"{self._name}: {fault_text(error)}"
        return RetryLaterError(text) if self._unexpected < MAX_UNEXPECTED else OperationFailed(text)


def fault_text(error: BaseException) -> str:
    """Return an unexpected error in one line, with its class."""
    text = str(error).strip().partition("\n")[0][:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
