"""Standard output whose failures can be told from all others: a full disk behind it is no bug of ours."""

import io
import os
import sys
from typing import Any, TextIO, cast


class StandardOutputError(OSError):
    """Standard output cannot be written; the message says why, for people."""

    def __str__(self) -> str:
        return f"standard output cannot be written: {(self.strerror or 'unknown error').lower()}"


class _CheckedFile(io.FileIO):
    """File descriptor 1; a reader that has gone stays a BrokenPipeError."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StandardOutputError(error.errno, error.strerror) from None


def checked(stream: TextIO | None) -> TextIO:
    """A stream like `stream`, which is standard output, that raises `StandardOutputError`.

    When it is None (the caller closed it), every write fails; its descriptor is taken, so that no file gets it.
    """
    if stream is None:
        taken = os.open(os.devnull, os.O_RDONLY)
        if taken != 1:
            os.dup2(taken, 1)
            os.close(taken)
    file = _CheckedFile(1, "w", closefd=False)
    unbuffered = bool(getattr(stream, "write_through", False))  # python -u
    return io.TextIOWrapper(
        cast("io.BufferedWriter", file) if unbuffered else io.BufferedWriter(file),
        encoding=getattr(stream, "encoding", "utf-8"),
        errors=getattr(stream, "errors", "strict"),
        line_buffering=bool(getattr(stream, "line_buffering", False)),
        write_through=unbuffered,
    )


def flush() -> OSError | None:
    """Write what waits; the error when that fails, after which nothing tries again at the end of the process."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, StandardOutputError) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return error
    return None
