"""Texts about instances that leave the executor: to the agent, and to the application's logs."""

import sys

from agiledart_dataflow.user_code.user_errors import NO_RECORD, user_code_error, without_surrogates
from agiledart_kernel.errors import AgileDartError

MAX_MESSAGE_CHARS = 4_000
"""Longest text of a user's exception, since the application's record holds it."""


def describe_error(error: BaseException) -> str:
    """Return an error as a text for the user."""
    if isinstance(error, AgileDartError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    return str(user_code_error("the builder", None, error, NO_RECORD))


def log_texts(texts: list[str]) -> None:
    """Write texts about records that error policies dropped to the application's logs."""
    if texts:
        text = without_surrogates("\n".join(texts))
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def bounded_text(text: str) -> str:
    """Return a text that can travel: without surrogates, and cut in the middle when it is too long."""
    if len(text) > MAX_MESSAGE_CHARS:
        text = f"{text[: MAX_MESSAGE_CHARS // 2]} … {text[-MAX_MESSAGE_CHARS // 2 :]}"
    return without_surrogates(text)
