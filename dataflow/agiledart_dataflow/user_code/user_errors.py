"""Error texts for users whose own code raised: step, file and line, record and error; engine frames are left out."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from agiledart_dataflow.user_code.callables import code_of, unwrapped
from agiledart_kernel.errors import UserCodeError

NO_RECORD: Any = object()
"""Placeholder for the record when no record was in hand."""

EXPRESSION_FILE = "<expression>"
"""File name in tracebacks of code generated from an expression."""

MAX_RECORD_TEXT = 200
MAX_ERROR_TEXT = 300


@runtime_checkable
class _WrapsOperator(Protocol):
    """Operator that does its work by another one."""

    inner: object


def bounded_repr(value: Any, limit: int = MAX_RECORD_TEXT) -> str:
    """Return a bounded `repr`; never raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  a user's __repr__ may raise anything, and one error is enough
        text = f"<a {type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def without_surrogates(text: str) -> str:
    """Return the text without lone surrogates, which have no wire form: a message may quote text that a device cut off."""
    return text.encode("utf-8", "replace").decode()


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  as above: a user's __str__ may raise anything
        text = "(its text cannot be shown)"
    return text if len(text) <= MAX_ERROR_TEXT else text[: MAX_ERROR_TEXT - 1] + "…"


def is_engine_file(filename: str) -> bool:
    """Return whether a file of a traceback belongs to the engine; generated loops do."""
    folders = any(ours in filename for ours in ("/agiledart_dataflow/", "/agiledart_executor/"))
    return folders or filename.startswith(("<stage ", EXPRESSION_FILE))


def _place(traceback: TracebackType | None, function: Callable[..., Any] | None) -> str:
    """Return file and line in the user's code.

    The innermost frame in the step's own file, else the innermost frame outside the engine.
    """
    code = None if function is None else code_of(unwrapped(function))
    own = None if code is None else code.co_filename
    own_line = other_line = ""
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        line = f"{filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno}"
        if filename == own:
            own_line = line
        elif not is_engine_file(filename):
            other_line = line
        traceback = traceback.tb_next
    if not own_line and not other_line and own is not None:
        code = function.__code__  # type: ignore[union-attr]  # `own` came from it
        own_line = f"{own.rsplit('/', 1)[-1]}:{code.co_firstlineno}"
    return own_line or other_line


def user_code_error(step: str, function: Callable[..., Any] | None, error: BaseException, record: Any) -> UserCodeError:
    """Return the error to raise in place of the user code's error; raise it `from` that error to keep `__cause__`."""
    place = _place(error.__traceback__, function)
    where = f"{place} in {step}" if place else f"in {step}"
    at = "" if record is NO_RECORD else f" for record {bounded_repr(record)}"
    text = _message(error)  # empty for a bare sys.exit() or assert
    return UserCodeError(f"{where}: {type(error).__name__}{f': {text}' if text else ''}{at}")


def record_in(traceback: TracebackType | None, runner: object) -> Any:
    """Return the record that an operator was processing when it raised.

    It is the local `row` in the innermost frame of a method of the operator, or of its `inner` operator.
    """
    inner = runner.inner if isinstance(runner, _WrapsOperator) else runner
    record: Any = NO_RECORD
    while traceback is not None:
        names = traceback.tb_frame.f_locals
        if "row" in names and (names.get("self") is runner or names.get("self") is inner):
            record = names["row"]
        traceback = traceback.tb_next
    return record
