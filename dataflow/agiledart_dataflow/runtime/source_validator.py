"""`SourceValidator`: takes rows from a reader and validates them, many at once in the usual case."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from agiledart_dataflow.data.batch import Held, as_rows, part_of
from agiledart_dataflow.event_time.event_clock import EventClock
from agiledart_dataflow.event_time.event_times import (
    LEAST_MS,
    MOST_MS,
    EventTimeError,
    checked_time,
    is_ascending,
    no_time,
    times_of,
)
from agiledart_dataflow.plan.connector_abilities import ReaderAbilities
from agiledart_dataflow.plan.connectors import MALFORMED_POLICIES as POLICIES
from agiledart_dataflow.plan.connectors import Reading, SourceReader
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.runtime.malformed_records import MalformedRecords
from agiledart_dataflow.runtime.source_steps import SourceSteps
from agiledart_dataflow.user_code.user_errors import NO_RECORD, user_code_error
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed
from agiledart_kernel.instants import event_time

MALFORMED = "malformed"
"""Option of a connector; `malformed=` of a source overrides it."""

_FAR_AHEAD_MS: Final = 3_600_000
"""A row's time so far beyond this machine's clock deserves a message when it makes other rows late."""


class SourceValidator:
    """Reader and validator of one source's rows.

    Args:
        step: the source's.
        reader: carries out its connector.
        abilities: of the reader.
        clock: its event time; queues rows that cannot go at once.
        paces: rows wait for their time.
        has_letters: a side output reads dead letters of this source.
        steps: the steps that make its rows from those that it reads, before they have times; None: there are none.

    Attributes:
        lines: read so far; `bad`: the malformed records among them.

    Raises:
        UserCodeError: `event_time` or `check` raised.
        OperationFailed: the reader failed, or the first malformed record came under the policy `fail`; names the step.
        ConfigurationError: there is no such policy for malformed records.
    """

    def __init__(
        self,
        step: Step,
        reader: SourceReader,
        abilities: ReaderAbilities,
        clock: EventClock,
        *,
        paces: bool,
        has_letters: bool = False,
        steps: SourceSteps | None = None,
    ) -> None:
        assert step.function is not None
        assert step.source is not None
        self._name = step.name
        self._reader = reader
        self._clock = clock
        self._paces = paces
        self._times_of_columns: Callable[[Any], Any] | None = step.source.times_of_columns
        self._time_of: Callable[[Any], Any] = step.function
        self._check: Callable[[Any], str | None] | None = step.source.check
        self._steps = steps
        of_connector = POLICIES[0] if step.connector is None else step.connector.option(MALFORMED, POLICIES[0])
        policy = step.source.malformed or of_connector
        if policy not in POLICIES:
            raise ConfigurationError(f"{step.name}: malformed is one of {', '.join(POLICIES)}, not {policy!r}")
        self._fails = policy == "fail"
        self.lines = 0
        self._has_reported_future = False
        self.bad = MalformedRecords(step.name)
        if policy == "dead_letter" and has_letters:
            self.bad.letters = []
            if abilities.malformed is not None:
                abilities.malformed.on_malformed(self.bad.put_aside)

    def replace_reader(self, reader: SourceReader) -> None:
        """Read from this reader from now on; it stands behind the rows already read, and so do the letters."""
        self._reader = reader
        self.bad.take_letters()

    @property
    def has_check(self) -> bool:
        """Report whether the user's `check` may reject rows."""
        return self._check is not None

    def times_if_ordered(self, held: Held) -> Any:
        """Return event times of rows (at least one) that may all go at once; None when each row must be checked alone."""
        if self._time_of is no_time:
            self._clock.newest = 0
            return [0] * len(held)
        times: Any
        try:
            if type(held) is not list:
                if self._times_of_columns is None:
                    return None
                times = self._times_of_columns(held)
                ascending = bool((times[1:] >= times[:-1]).all())
            elif len(held) == 1:  # the lone row of a slow stream
                time = self._time_of(held[0])
                times, ascending = [time if type(time) is int else event_time(time)], True
            else:
                times = times_of(held, self._time_of)
                ascending = is_ascending(times)
        except (Exception, SystemExit):  # noqa: BLE001  user code; the careful way finds the row
            return None
        newest = self._clock.newest
        if not ascending or (newest is not None and times[0] < newest):
            return None
        if times[0] < LEAST_MS or times[-1] > MOST_MS:
            return None
        self._clock.newest = int(times[-1])
        return times

    def time_of_last(self, held: Held) -> int | None:
        """Return the event time of the last of these rows, which are not validated yet; None: it is unknown."""
        if self._steps is not None or not len(held):
            return None
        try:
            return event_time(self._time_of(as_rows(part_of(held, len(held) - 1, len(held)))[0]))
        except (Exception, SystemExit):  # noqa: BLE001  user code; the row is validated when it is handed out
            return None

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """Take rows from the reader."""
        try:
            reading = self._reader.read(max_rows, wall_ns)
        except OperationFailed as error:
            raise OperationFailed(f"{self._name}: {error}") from None
        except AgileDartError:
            raise
        except (Exception, SystemExit) as error:  # a callable or generator of the user's
            raise user_code_error(self._name, None, error, NO_RECORD) from error
        self.lines += reading.lines
        if reading.notes:
            self.bad.add_notes(reading.notes)
        if reading.malformed:
            for reason, count in reading.malformed.items():
                self.bad.count(reason, count)
            if self._fails:
                self._fail(reading.notes[0] if reading.notes else ", ".join(reading.malformed))
        return reading

    def _fail(self, text: str) -> None:
        raise OperationFailed(f"{self._name}: a malformed record, and malformed=fail allows none: {text}")

    def validated(self, held: Held, came_ns: int) -> tuple[Held, Any]:
        """Validate rows: return those that may go at once with their times, usually all; queue the others."""
        if not len(held):
            return [], []
        if self._steps is not None:
            held = self._steps.run(self._accepted(as_rows(held)), came_ns)
            if not held:
                return [], []
        wall_ms = came_ns // 1_000_000
        if type(held) is not list and self._times_of_columns is None:
            held = as_rows(held)
        if not (self._clock.sorts or self._clock.due or self._check_at_times or self._paces):
            times = self.times_if_ordered(held)
            if times is not None:
                return held, times
        self._validate_each(as_rows(held), wall_ms)
        return [], []

    def _validate_each(self, rows: list[Any], wall_ms: int) -> None:
        row: Any = None
        late = self._clock.late
        check = self._check_at_times
        try:
            for row in rows:
                detail = ""
                objection = None if check is None else check(row)
                if objection is None:
                    try:
                        time_ms = checked_time(event_time(self._time_of(row)))
                    except EventTimeError as error:
                        objection, detail = error.reason, str(error)
                    else:
                        objection = self._clock.accept(time_ms, row, wall_ms)
                if objection is not None:
                    self._refuse(objection, row, detail)
        except AgileDartError:
            raise
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            raise user_code_error(self._name, self._time_of, error, row) from error
        if self._clock.late > late and not self._has_reported_future:
            self._look_for_future(wall_ms)

    @property
    def _check_at_times(self) -> Callable[[Any], str | None] | None:
        """The user's check, where the rows that get times are those that were read."""
        return self._check if self._steps is None else None

    def _accepted(self, rows: list[Any]) -> list[Any]:
        """Return the rows that the user's check accepts, of those that steps at the source take."""
        if self._check is None:
            return rows
        accepted: list[Any] = []
        row: Any = None
        try:
            for row in rows:
                objection = self._check(row)
                if objection is None:
                    accepted.append(row)
                else:
                    self._refuse(objection, row)
        except AgileDartError:
            raise
        except (Exception, SystemExit) as error:  # user code may raise anything; it leaves here named
            raise user_code_error(self._name, self._check, error, row) from error
        return accepted

    def _refuse(self, objection: object, row: Any, detail: str = "") -> None:
        text = self.bad.refuse(str(objection), row, detail)
        if self._fails:
            self._fail(text)

    def _look_for_future(self, wall_ms: int) -> None:
        """Report a row far in the future: such a row makes all later ones late, and users would look for the fault in those."""
        newest = self._clock.newest
        if wall_ms and newest is not None and newest > wall_ms + _FAR_AHEAD_MS:
            self._has_reported_future = True
            note = (
                f"rows are late because an earlier row has the time {_time_text(newest)}, ahead of this machine's clock:"
                " source(…, max_ahead=timedelta(…)) lets such a row wait for its time"
            )
            self.bad.add_notes((note,))


def _time_text(time_ms: int) -> str:
    """Format a time for people."""
    try:
        return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms:,} ms after 1970"
