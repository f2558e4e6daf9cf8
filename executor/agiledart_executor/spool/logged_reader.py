"""Reader that writes a source's input to a log on its node's disk before it is validated, and replays it after a restart.

It serves sources that cannot be read again (`tcp:`, `http:`, `mqtt:`), and sources whose lateness depends on a clock. The log holds
each reading, its arrival time, and the event time up to which the source was complete then. It also holds each step by which a
clock let event time pass without a reading. So a replay validates every row as before, gives it the same number and sends the same
watermarks. A replay runs at full speed.

The sender is notified that its rows are safe when the log has been fsynced (PUBACK of MQTT, 202 of HTTP). The log is cut at each
committed epoch. When the log is full the source reads nothing, so backpressure reaches the sender.
Departs: the specification logs validated and numbered rows. Readings with the values that their validation depends on need no
second path into the flow; the user's `event_time` and `check` then run again, as they do for a file.
Source: recovery specification §10 (what must replay alike), §12.
"""

import sys
from collections.abc import Callable
from typing import Any, cast

import msgspec

from agiledart_dataflow.data.batch import as_rows
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.event_clock import EventClock
from agiledart_dataflow.plan.connector_abilities import AcknowledgesInput, HoldsInput, ReaderAbilities
from agiledart_dataflow.plan.connectors import Reading, SourceReader
from agiledart_executor.spool.source_log import SourceLog
from agiledart_kernel.errors import OperationFailed, UserCodeError

SYNC_SECONDS = 0.05
"""Seconds for which readings may wait for the next fsync, which covers all of them."""


class LoggedReader:
    """Reader of a source with its log.

    Args:
        reader: reads new input.
        log: opened; its content comes first.
        row_type: of the rows.
        reads_ahead: input that comes while outputs are blocked goes into the log, too.
        resume: makes a reopened reader skip a number of lines; None when the input cannot be read again.
        moves: the source may continue without the log that it had on another node; rows that only that log had are lost then.

    Attributes:
        lines_ahead: lines that this process has read ahead and not handed out yet.
        written: called when content waits for an fsync, once until `synced`.
        lost_behind: number of lines behind which the source continued without the log that held the later ones; None when it
            has not.

    Raises:
        OperationFailed: from `read`, when the log cannot be read back.
        UserCodeError: from `read`, for rows that do not have their declared type.
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
        self._reader, self._abilities = reader, ReaderAbilities.of(reader)
        self._log, self.stamps = log, reader.stamps
        self.reads_ahead, self._resume, self._moves = reads_ahead, resume, moves
        self._encoder = msgspec.msgpack.Encoder()
        letters = list[tuple[str, str]]
        kind = generic(tuple, int, dict[str, int], bool, int, int | None, bytes, letters, generic(list, row_type))
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(kind)
        self._cursor, self._lines, self._place = log.start, 0, b""  # position of the rows that were handed out
        self._end_place = b""  # position at the end of the log
        self._is_behind = log.start < log.end  # the reader was reopened and must still catch up with the end of the log
        self._clock: EventClock | None = None
        self._unwritten: Reading | None = None
        self._letters: list[tuple[str, str]] = []  # malformed records of the present reading
        self._letter_taker: Callable[[str, str], None] | None = None
        self._trouble = ""
        self.written: Callable[[], None] = lambda: None
        self._waits_for_sync = False
        self._confirms = _enable_confirmations(self._abilities.acknowledges)
        self._receipt = 0
        self.lines_ahead = 0
        self.lost_behind: int | None = None

    # ---- for its source

    def use_event_clock(self, clock: EventClock) -> None:
        """Validate rows by this clock, and log each step by which it lets event time pass."""
        self._clock = clock
        clock.log_time_passed = self._time_passed
        self._look()

    def on_malformed(self, take: Callable[[str, str], None]) -> None:
        """Hand malformed records to `take`; the log holds them, too."""
        self._letter_taker = take
        if self._abilities.malformed is not None:
            self._abilities.malformed.on_malformed(lambda text, fault: self._letters.append((text, fault)))

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """Return the next reading from the log; at its end read new input, log it and return it."""
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

    def read_ahead(self, max_rows: int, wall_ns: int) -> Reading | None:
        """Read input into the log although no row can be sent, and return it; None when there was no input or no space.

        A reopened reader waits until the log has been replayed, because only the log's end holds the position to continue from.
        """
        if self._is_behind and self._cursor < self._log.end:
            return None
        reading = self._log_next(max_rows, wall_ns, None)
        self._look()
        if reading is None:
            return None
        self._letters = []
        self.lines_ahead += reading.lines
        return reading if reading.lines else None

    def fileno(self) -> int | None:
        """Return the reader's own descriptor once the log is replayed; None before that."""
        waitable = self._abilities.waitable
        has_own = self._cursor < self._log.end or self._unwritten is not None or not self._log.has_space()
        return None if waitable is None or has_own else waitable.fileno()

    def connection_status(self) -> str:
        """Return the trouble with the log as text, else the reader's own status."""
        if self._trouble:
            return self._trouble
        if not self._log.has_space():
            return "its log is full: reading resumes when an epoch is committed; a larger spool_bytes avoids the wait"
        connection = self._abilities.connection
        return "" if connection is None else str(connection.connection_status())

    def close(self) -> None:
        """Close reader and log; rows that were not fsynced are not confirmed to their sender."""
        self._reader.close()
        self._log.close()

    # ---- for epochs

    def position(self) -> bytes:
        """Return the position of the rows that were handed out: offset in the log, lines, and the reader's own position."""
        return msgspec.msgpack.encode(_Position(self._cursor, self._lines, self._place, self._log.identity))

    @property
    def unread(self) -> int:
        """Bytes that were read ahead, wait in the log, and cannot be read again from their origin."""
        return 0 if self._resume is not None else self._log.end - self._cursor

    def seek(self, position: bytes) -> None:
        """Rewind to a position.

        Raises:
            OperationFailed: the log on this node does not hold that position.
        """
        at = _POSITION.decode(position)
        self._cursor, self._lines, self._place = at.cursor, at.lines, at.place
        if at.log != self._log.identity and self._moves:
            self._log.trim(self._log.end)  # left from an earlier time of the source on this node
            self._cursor = self._log.end
            if self._resume is None:
                self.lost_behind = at.lines
                text = f"continues behind line {at.lines:,}: later lines were only in another node's log and are lost"
                print(text, file=sys.stderr)  # noqa: T201  `agiledart logs` shows what an executor prints
        elif at.log != self._log.identity or not self._log.start <= self._cursor <= self._log.end:
            raise OperationFailed(
                f"its log on this node does not reach to where it was ({self._cursor:,}; it has {self._log.start:,} to"
                f" {self._log.end:,}): it was moved, cut, or the disk lost it"
            )
        self._is_behind = True
        self._look()

    def resume_from(self, position: bytes) -> None:
        """Continue at the position of another run's reader, whose log is gone; this log holds only later rows."""
        at = _POSITION.decode(position)
        self._cursor, self._lines, self._place = self._log.start, at.lines, at.place
        self._is_behind = True
        self._look()

    def trim(self, position: bytes) -> None:
        """Cut the log at the position of a committed epoch: earlier rows are never read again."""
        at = _POSITION.decode(position)
        if at.log == self._log.identity:
            self._log.trim(at.cursor)
        if at.place and self._abilities.trimmable is not None:
            self._abilities.trimmable.trim(at.place)

    def saved_by_epochs(self, beginning: bytes, keep: Callable[[bytes], None]) -> None:
        """Pass the call on to a reader that has this method; the log determines where to continue in any case."""
        if self._abilities.by_epoch is not None:
            self._abilities.by_epoch.saved_by_epochs(beginning, keep)

    def sync(self) -> int:
        """Fsync the log, in any thread, and return the receipt for `synced`. Raises OSError."""
        receipt = self._receipt
        self._log.sync()
        return receipt

    def synced(self, receipt: int) -> None:
        """Confirm to the senders that the rows up to this receipt are safe."""
        self._waits_for_sync = False
        if self._confirms is not None:
            self._confirms.acknowledge(receipt)

    # ----

    def _look(self) -> None:
        if self._clock is not None:
            self._clock.replays = self._cursor < self._log.end

    def _replay_next(self) -> Reading:
        """Return the next reading of the log, and replay the steps of the clock before it."""
        while True:
            chunk, self._cursor = self._log.read(self._cursor)
            try:
                lines, malformed, exhausted, wall_ns, newest, self._place, letters, rows = self._decoder.decode(chunk)
            except (msgspec.MsgspecError, ValueError) as error:
                raise UserCodeError(f"its rows are not of the type that it declares: {error}") from None
            if self._clock is not None and newest is not None:
                self._clock.reach(newest)
            self._lines += lines
            self.lines_ahead = max(0, self.lines_ahead - lines)  # lines of an earlier process were not counted
            self._look()
            self._forward_malformed(letters)
            if lines or exhausted or self._cursor >= self._log.end:
                return Reading(rows, lines, malformed, exhausted, came_ns=wall_ns)

    def _log_next(self, max_rows: int, wall_ns: int, newest: int | None) -> Reading | None:
        """Read new input and log it; None when the log has no space for it."""
        reading, self._unwritten = self._unwritten, None
        if not self._log.has_space():
            self._unwritten = reading
            return None
        if reading is None:
            self._catch_up()
            reading = self._reader.read(max_rows, wall_ns)
        if reading.lines or reading.exhausted:
            seekable = self._abilities.seekable
            if not self._append(reading, wall_ns, newest, b"" if seekable is None else seekable.position()):
                self._unwritten = reading
                return None
            if self._confirms is not None:
                self._receipt = self._confirms.receipt()
        return reading

    def _forward_malformed(self, letters: list[tuple[str, str]]) -> None:
        if self._letter_taker is not None:
            for text, fault in letters:
                self._letter_taker(text, fault)

    def _catch_up(self) -> None:
        """Bring a reopened reader to the position at the end of the log."""
        if not self._is_behind:
            return
        self._is_behind, self._end_place = False, self._place
        if self._place and self._abilities.seekable is not None:
            self._abilities.seekable.seek(self._place)
        elif self._resume is not None:
            self._reader = self._resume(self._reader, self._lines)
            self._abilities = ReaderAbilities.of(self._reader)
        self._letters = []  # those of skipped lines were handed on before

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
        """Log a step of the clock; return False when there is no space, since a replay could not repeat the step."""
        if not self._log.has_space() or not self._append(Reading([], 0), 0, newest, self._place):
            return False
        self._cursor = self._log.end
        return True


def _enable_confirmations(reader: AcknowledgesInput | None) -> AcknowledgesInput | None:
    """Let a reader that confirms rows to their sender wait for `synced`."""
    if reader is not None:
        cast(HoldsInput, reader).holds = True
    return reader


class _Position(msgspec.Struct, frozen=True, array_like=True):
    """Position of a source: offset in its log, lines, the reader's own position, and the identity of the log."""

    cursor: int
    lines: int
    place: bytes
    log: bytes = b""


_POSITION: msgspec.msgpack.Decoder[_Position] = msgspec.msgpack.Decoder(_Position)
