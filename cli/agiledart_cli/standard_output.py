"""Standard output with an error class of its own: a full disk behind it is not a bug of AgileDart."""

import io
import os
import sys
from typing import Any, TextIO, cast


class StandardOutputError(OSError):
    """Standard output cannot be written; the message says why."""

    def __str__(self) -> str:
        return f"standard output cannot be written: {(self.strerror or 'unknown error').lower()}"


class _CheckedFile(io.FileIO):
    """File descriptor 1; a closed pipe remains a BrokenPipeError."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StandardOutputError(error.errno, error.strerror) from None


def checked(stream: TextIO | None) -> TextIO:
    """Return a stream like `stream` (standard output) whose writes raise `StandardOutputError`.

    When `stream` is None (the caller closed it), each write fails; descriptor 1 is occupied, so that no other file gets it.
    """
    if stream is None:
        taken = os.open(os.devnull, os.O_RDONLY)
        if taken != 1:
            os.dup2(taken, 1)
            os.close(taken)
    file = _CheckedFile(1, "w", closefd=False)
    text = stream if isinstance(stream, io.TextIOWrapper) else None
    unbuffered = text is not None and text.write_through  # python -u
    return io.TextIOWrapper(
        cast("io.BufferedWriter", file) if unbuffered else io.BufferedWriter(file),
        encoding="utf-8" if text is None else text.encoding,
        errors="strict" if text is None else text.errors,
        line_buffering=text is not None and text.line_buffering,
        write_through=unbuffered,
    )


def flush() -> OSError | None:
    """Write the buffer; return the error when that fails. The end of the process then does not try again."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, StandardOutputError) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    return None
