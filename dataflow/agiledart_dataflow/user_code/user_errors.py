"""What users read when their own code raises: step, file and line, the record, the error; never our frames."""

from collections.abc import Callable
from types import TracebackType
from typing import Any

from agiledart_kernel.errors import UserCodeError

NO_RECORD: Any = object()
"""Stands for the record where there was none yet."""

EXPRESSION_FILE = "<expression>"
"""The file in tracebacks of what was made of an expression."""

MAX_RECORD_TEXT = 200
MAX_ERROR_TEXT = 300


def bounded_repr(value: Any, limit: int = MAX_RECORD_TEXT) -> str:
    """A bounded `repr` that never raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  a user's __repr__ may raise anything, and one error is enough
        text = f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def without_surrogates(text: str) -> str:
    """Without lone surrogates, which have no wire form: a message may quote what a device cut off."""
    return text.encode("utf-8", "replace").decode()


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  as above: a user's __str__ may raise anything
        text = "(its text cannot be shown)"
    return text if len(text) <= MAX_ERROR_TEXT else text[: MAX_ERROR_TEXT - 1] + "…"


def is_engine_file(filename: str) -> bool:
    """Whether a file of a traceback is the engine's, generated loops among them."""
    folders = any(ours in filename for ours in ("/agiledart_dataflow/", "/agiledart_executor/"))
    return folders or filename.startswith(("<stage ", EXPRESSION_FILE))


def _place(traceback: TracebackType | None, function: Callable[..., Any] | None) -> str:
    """File and line in the user's code:

    The innermost frame in the step's own file, else the innermost that is not ours.
    """
    function = getattr(function, "__wrapped__", function)
    own = getattr(getattr(function, "__code__", None), "co_filename", None)
    place = other = ""
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        here = f"{filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno}"
        if filename == own:
            place = here
        elif not is_engine_file(filename):
            other = here
        traceback = traceback.tb_next
    if not place and not other and own is not None:
        code = function.__code__  # type: ignore[union-attr]  # `own` came from it
        place = f"{own.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
    return place or other


def user_code_error(step: str, function: Callable[..., Any] | None, error: BaseException, record: Any) -> UserCodeError:
    """The error to raise in place of what user code raised; keeps it as `__cause__` when raised `from` it."""
    place = _place(error.__traceback__, function)
    where = f"{place} in {step}" if place else f"in {step}"
    at = "" if record is NO_RECORD else f" for record {bounded_repr(record)}"
    text = _message(error)  # empty for a bare sys.exit() or assert
    return UserCodeError(f"{where}: {type(error).__name__}{f': {text}' if text else ''}{at}")


def record_in(traceback: TracebackType | None, runner: object) -> Any:
    """The record that an operator had in hand when it raised: `row` in the frame of a method of its own, or of its `inner`'s."""
    inner = getattr(runner, "inner", runner)
    found: Any = NO_RECORD
    while traceback is not None:
        names = traceback.tb_frame.f_locals
        if "row" in names and (names.get("self") is runner or names.get("self") is inner):
            found = names["row"]
        traceback = traceback.tb_next
    return found
