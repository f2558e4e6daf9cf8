"""`Rejections`: rows that a sink cannot take, or that its system refuses, under the sink's policy `rejected=`.

    rejected=count                              the usual: such a row is counted and reported, and the others arrive
    rejected=dead_letter&dead_letters=FILE      the same, and the row goes to FILE on the sink's node, a JSON object a line
    rejected=fail                               the first one ends the application

A system that is away, or that refuses this client as a whole, is no matter of a row.
"""

import threading
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from agiledart_connectors.codecs.malformed_examples import bounded_repr
from agiledart_dataflow.data.schema import fields_of
from agiledart_dataflow.plan.connectors import REPORTED_PER_REASON, Connector
from agiledart_dataflow.user_code.user_errors import without_surrogates
from agiledart_kernel.errors import ConfigurationError, OperationFailed, system_text
from agiledart_kernel.text import harmless

POLICIES: Final = ("count", "fail", "dead_letter")
OPTIONS: Final = ("rejected", "dead_letters")

LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""Range of an int in typed columns: of a log, a table, a Parquet file, a point."""

_MAX_RECORD_CHARACTERS: Final = 65_536


class RowRefusedError(ValueError):
    """A row does not fit; the text begins with its field."""


class RowsRefusedError(Exception):
    """The receiver refuses these rows, one of them at least, and none of them was taken for good."""


class Rejections:
    """Rows of one sink that were rejected. The instance and the sink's own thread may both use it."""

    def __init__(self) -> None:
        self._policy, self._file = POLICIES[0], ""
        self._lock = threading.Lock()
        self._new = self._total = 0
        self._notices: list[str] = []

    def configure(self, connector: Connector) -> None:
        """Take the policy of a connector. Raises `ConfigurationError`."""
        self._policy, self._file = check_policy(connector), connector.option("dead_letters")

    def refuse(self, row: Any, fault: str | BaseException) -> None:
        """Reject a row. Raises `OperationFailed`: the policy admits none, or the letter cannot be written."""
        text = fault if isinstance(fault, str) else fault_of(row, fault)
        if self._policy == "fail":
            raise OperationFailed(f"a row is rejected, and rejected=fail allows none: {text}: {bounded_repr(row)}")
        with self._lock:
            self._new += 1
            self._total += 1
            if self._total <= REPORTED_PER_REASON:
                self._notices.append(harmless(without_surrogates(f"a row is rejected: {text}: {bounded_repr(row)}")))
            if self._file:
                self._write_letter(row, text)

    def _write_letter(self, row: Any, text: str) -> None:
        record = row if isinstance(row, str) else repr(row)
        letter = {"record": without_surrogates(record[:_MAX_RECORD_CHARACTERS]), "error": without_surrogates(text)}
        try:
            with Path(self._file).open("ab") as file:
                file.write(msgspec.json.encode(letter) + b"\n")
        except OSError as error:
            raise OperationFailed(f"{self._file} cannot be written: {system_text(error)}") from None

    def take(self) -> int:
        """Return and forget how many rows were rejected since the last call."""
        with self._lock:
            new, self._new = self._new, 0
        return new

    def take_notices(self) -> list[str]:
        """Return and forget notices for users."""
        with self._lock:
            notices, self._notices = self._notices, []
        return notices


class RejectsRows:
    """Base of writers that go on without a row that they cannot take.

    Attributes:
        rejections: such rows.
    """

    def __init__(self) -> None:
        self.rejections = Rejections()

    def take_rejected(self) -> int:
        """Return and forget how many of the rows taken so far were rejected since the last call."""
        return self.rejections.take()

    def take_notices(self) -> list[str]:
        """Return and forget notices for users."""
        return self.rejections.take_notices()


def check_policy(connector: Connector) -> str:
    """Return the policy of a connector for rejected rows. Raises `ConfigurationError`."""
    policy, file = connector.option("rejected", POLICIES[0]), connector.option("dead_letters")
    if policy not in POLICIES:
        raise ConfigurationError(f"{connector.url()}: rejected is one of {', '.join(POLICIES)}, not {policy!r}")
    if (policy == "dead_letter") != bool(file):
        raise ConfigurationError(f"{connector.url()}: rejected=dead_letter and dead_letters=FILE go together")
    return policy


def _nothing() -> None:
    """Ignore the row."""


def rendered_rows(
    rows: Iterable[Any],
    now: int,
    render: Callable[[Any, int], Any],
    rejections: Rejections,
    on_rejected: Callable[[], None] = _nothing,
) -> list[Any]:
    """Return what `render` makes of rows; reject those at which it raises, and call `on_rejected` for each."""
    made = []
    for row in rows:
        try:
            made.append(render(row, now))
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError) as error:
            rejections.refuse(row, error)
            on_rejected()
    return made


def fitting_rows(rows: list[Any], convert: Callable[[list[Any]], Any], rejections: Rejections) -> list[Any]:
    """Return the rows that `convert` takes, one by one; reject the others. It was called with all of them, and raised."""
    if len(rows) == 1:
        try:
            convert(rows)
        except (TypeError, ValueError, ArithmeticError) as error:
            rejections.refuse(rows[0], error)
            return []
        return rows
    try:
        convert(rows)
    except (TypeError, ValueError, ArithmeticError):
        half = len(rows) // 2
        return fitting_rows(rows[:half], convert, rejections) + fitting_rows(rows[half:], convert, rejections)
    return rows


def fault_of(row: Any, error: BaseException) -> str:
    """Return why a row does not fit, with its field where that is known."""
    if isinstance(error, RowRefusedError):
        return str(error)
    try:
        fields = [(field.name, attrgetter(field.name)(row)) for field in fields_of(type(row))]
    except AttributeError:
        fields = []
    for name, value in fields or (row.items() if isinstance(row, dict) else ()):
        if type(value) is int and not LEAST <= value <= MOST:
            return f"{name}: {value} does not fit 64 bits"
    text = str(error).strip().partition("\n")[0][:300]
    return text or type(error).__name__
