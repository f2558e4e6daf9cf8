"""`LoggedReader`: what a source reads is in a log on its node's disk before it is judged, and is read again from there.

For a source that cannot be read again (`tcp:`, `http:`, `mqtt:`), and for one whose lateness depends on a clock. What goes into the
log is each reading, the time at which it came, and the event time up to which the source was complete then; also each step by which
a clock let event time pass while nothing was read. So a replay judges every row as it was judged, gives it the number that it had,
and makes the promises that were made; it is not paced.

Who sent the rows is told that they are safe when the log has been forced to the disk (PUBACK of MQTT, 202 of HTTP).
The log is cut at each committed epoch. When it is full, nothing is read (pressure goes to where rows come from).
Departs: the specification logs judged and numbered rows. Readings with what they were judged by need no second way into the flow;
the user's `event_time` and `check` run again then, as they do for a file.
Source: recovery specification §10 (what must replay alike), §12.
"""

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.event_clock import EventClock
from agiledart_dataflow.plan.connectors import Reading, SourceReader
from agiledart_executor.spool.source_log import SourceLog
from agiledart_kernel.errors import OperationFailed, UserCodeError

SYNC_SECONDS = 0.05
"""How long what was read may wait to be forced to the disk, together with all that comes meanwhile."""


class LoggedReader:
    """A reader with its log.

    Args:
        reader: reads what is new.
        log: opened; what lies in it comes first.
        row_type: of the rows.
        reads_ahead: what comes while outputs are blocked goes into the log, too.
        resume: brings a reader that begins anew behind so many lines; None: what was read is gone.
        moves: it may go on without the log that it had on another node; what only that one had is lost then.

    Attributes:
        written: called when something waits to be forced to the disk, once until `synced`.
        lost_behind: it has begun behind so many lines without the log in which those after them lay; None: it has not.

    Raises:
        OperationFailed: from `read`, when what lies in the log cannot be read back.
        UserCodeError: from `read`, for rows that are not what their type says.
    """

    def __init__(
        self,
        reader: SourceReader,
        log: SourceLog,
        row_type: Any,
        *,
        reads_ahead: bool = False,
        resume: Callable[[SourceReader, int], SourceReader] | None = None,
        moves: bool = False,
    ) -> None:
        self._reader: Any = reader
        self._log, self.stamps = log, reader.stamps
        self.reads_ahead, self._resume, self._moves = reads_ahead, resume, moves
        self._encoder = msgspec.msgpack.Encoder()
        letters = list[tuple[str, str]]
        kind = generic(tuple, int, dict[str, int], bool, int, int | None, bytes, letters, generic(list, row_type))
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        self._cursor, self._lines, self._place = log.start, 0, b""  # of what was handed out
        self._end_place = b""  # of what is in the log
        self._is_behind = log.start < log.end  # the reader has begun anew: it does not stand where the log ends
        self._clock: EventClock | None = None
        self._unwritten: Reading | None = None
        self._letters: list[tuple[str, str]] = []  # malformed records of the reading under way
        self._letter_taker: Callable[[str, str], None] | None = None
        self._trouble = ""
        self.written: Callable[[], None] = lambda: None
        self._waits_for_sync = False
        self._confirms = _enable_confirmations(reader)
        self._receipt = 0
        self.lost_behind: int | None = None

    # ---- for its source

    def use_event_clock(self, clock: EventClock) -> None:
        """Its rows are judged by this clock."""
        self._clock = clock
        clock.log_time_passed = self._time_passed
        self._look()

    def on_malformed(self, take: Callable[[str, str], None]) -> None:
        """Malformed records are handed on; they are in the log, too."""
        self._letter_taker = take
        if (own := getattr(self._reader, "on_malformed", None)) is not None:
            own(lambda text, fault: self._letters.append((text, fault)))

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """What lies in the log, one reading at a time; then what is new, when it is in the log."""
        if self._cursor < self._log.end:
            return self._replay_next()
        newest = None if self._clock is None else self._clock.newest
        reading = self._log_next(max_rows, wall_ns, newest)
        self._cursor = self._log.end
        if reading is None:
            return Reading([], 0)
        self._lines, self._place = self._lines + reading.lines, self._end_place
        self._forward_malformed(self._letters)
        self._letters = []
        return reading

    def read_ahead(self, max_rows: int, wall_ns: int) -> bool:
        """Read on into the log although nothing can be sent; false when there was nothing, or no room.

        A reader that has begun anew waits until the log has come again: only its end says where to go on.
        """
        if self._is_behind and self._cursor < self._log.end:
            return False
        reading = self._log_next(max_rows, wall_ns, None)
        self._look()
        if reading is None:
            return False
        self._letters = []
        return reading.lines > 0

    def fileno(self) -> int | None:
        """As the reader's own, when the log has nothing more."""
        ask = getattr(self._reader, "fileno", None)
        has_own = self._cursor < self._log.end or self._unwritten is not None or not self._log.has_space()
        return None if ask is None or has_own else ask()

    def connection_status(self) -> str:
        """Trouble with the log, else the reader's own."""
        if self._trouble:
            return self._trouble
        if not self._log.has_space():
            return "its log is full: it reads on when an epoch is committed, or with more spool_bytes"
        ask = getattr(self._reader, "connection_status", None)
        return "" if ask is None else str(ask())

    def close(self) -> None:
        """What was not forced to the disk is not confirmed."""
        self._reader.close()
        self._log.close()

    # ---- for epochs

    def position(self) -> bytes:
        """What of the log was handed out, and how many lines that is."""
        return msgspec.msgpack.encode(_Position(self._cursor, self._lines, self._place, self._log.identity))

    @property
    def unread(self) -> int:
        """Bytes that were read ahead, wait in the log, and cannot be read again from where they came."""
        return 0 if self._resume is not None else self._log.end - self._cursor

    def seek(self, position: bytes) -> None:
        """Go back there."""
        at = _POSITION.decode(position)
        self._cursor, self._lines, self._place = at.cursor, at.lines, at.place
        if at.log != self._log.identity and self._moves:
            self._log.trim(self._log.end)  # of an earlier stay on this node
            self._cursor = self._log.end
            if self._resume is None:
                self.lost_behind = at.lines
                text = f"reads on behind line {at.lines:,}: what was read later, and lay in another node's log only, is lost"
                print(text, file=sys.stderr)  # noqa: T201  what an executor prints is shown by `agiledart logs`
        elif at.log != self._log.identity or not self._log.start <= self._cursor <= self._log.end:
            raise OperationFailed(
                f"its log on this node does not reach to where it was ({self._cursor:,}; it has {self._log.start:,} to"
                f" {self._log.end:,}): it was moved, cut, or the disk lost it"
            )
        self._is_behind = True
        self._look()

    def resume_from(self, position: bytes) -> None:
        """Go on where a reader of another run stood, whose log is gone; what lies in this log was read behind that."""
        at = _POSITION.decode(position)
        self._cursor, self._lines, self._place = self._log.start, at.lines, at.place
        self._is_behind = True
        self._look()

    def trim(self, position: bytes) -> None:
        """An epoch is committed there: what lies before will never be read again."""
        at = _POSITION.decode(position)
        if at.log == self._log.identity:
            self._log.trim(at.cursor)
        if at.place and hasattr(self._reader, "trim"):
            self._reader.trim(at.place)

    def saved_by_epochs(self, beginning: bytes, keep: Callable[[bytes], None]) -> None:
        """For its reader, where that has it; what is in the log says where to go on in any case."""
        if hasattr(self._reader, "saved_by_epochs"):
            self._reader.saved_by_epochs(beginning, keep)

    def sync(self) -> int:
        """Force the log to the disk, in any thread; what `synced` is to be told. Raises OSError."""
        receipt = self._receipt
        self._log.sync()
        return receipt

    def synced(self, receipt: int) -> None:
        """So much is safe; who sent it may forget it."""
        self._waits_for_sync = False
        if self._confirms:
            self._reader.acknowledge(receipt)

    # ----

    def _look(self) -> None:
        if self._clock is not None:
            self._clock.replays = self._cursor < self._log.end

    def _replay_next(self) -> Reading:
        """The next reading in the log; what a clock did before is done with it."""
        while True:
            chunk, self._cursor = self._log.read(self._cursor)
            try:
                lines, malformed, exhausted, wall_ns, newest, self._place, letters, rows = self._decoder.decode(chunk)
            except (msgspec.MsgspecError, ValueError) as error:
                raise UserCodeError(f"its rows are not what it says: {error}") from None
            if self._clock is not None and newest is not None:
                self._clock.reach(newest)
            self._lines += lines
            self._look()
            self._forward_malformed(letters)
            if lines or exhausted or self._cursor >= self._log.end:
                return Reading(rows, lines, malformed, exhausted, came_ns=wall_ns)

    def _log_next(self, max_rows: int, wall_ns: int, newest: int | None) -> Reading | None:
        """Something new, which is in the log; None when there is no room for it."""
        reading, self._unwritten = self._unwritten, None
        if not self._log.has_space():
            self._unwritten = reading
            return None
        if reading is None:
            self._catch_up()
            reading = self._reader.read(max_rows, wall_ns)
        if reading.lines or reading.exhausted:
            place = getattr(self._reader, "position", None)
            if not self._append(reading, wall_ns, newest, b"" if place is None else place()):
                self._unwritten = reading
                return None
            if self._confirms:
                self._receipt = self._reader.receipt()
        return reading

    def _forward_malformed(self, letters: list[tuple[str, str]]) -> None:
        if self._letter_taker is not None:
            for text, fault in letters:
                self._letter_taker(text, fault)

    def _catch_up(self) -> None:
        """Bring a reader that has begun anew to where the log ends."""
        if not self._is_behind:
            return
        self._is_behind, self._end_place = False, self._place
        if self._place and hasattr(self._reader, "seek"):
            self._reader.seek(self._place)
        elif self._resume is not None:
            self._reader = self._resume(self._reader, self._lines)
        self._letters = []  # of what was skipped

    def _append(self, reading: Reading, wall_ns: int, newest: int | None, place: bytes) -> bool:
        rows = as_rows(reading.rows)
        entry = (reading.lines, reading.malformed, reading.exhausted, wall_ns, newest, place, self._letters, rows)
        try:
            chunk = self._encoder.encode(entry)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UserCodeError(f"its rows cannot be kept: {error}") from None
        try:
            self._log.append(chunk, len(rows))
        except OperationFailed as error:
            self._trouble = str(error)
            return False
        self._trouble, self._end_place = "", place
        if not self._waits_for_sync:
            self._waits_for_sync = True
            self.written()
        return True

    def _time_passed(self, newest: int) -> bool:
        """A clock lets event time pass: only when a replay will do so, too."""
        if not self._log.has_space() or not self._append(Reading([], 0), 0, newest, self._place):
            return False
        self._cursor = self._log.end
        return True


def _enable_confirmations(reader: Any) -> bool:
    """Have a reader that tells where rows come from that they are safe wait with it; whether it is one."""
    if not hasattr(reader, "receipt"):
        return False
    reader.holds = True
    return True


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """Where a source stands: in its log, in lines, in what it reads; and in which log."""

    cursor: int
    lines: int
    place: bytes
    log: bytes = b""


_POSITION: msgspec.msgpack.Decoder[_Position] = msgspec.msgpack.Decoder(_Position)
