"""Rewind of a source to a checkpoint: its reader is reopened, and the lines that were read by then are skipped.

A reader that knows its position seeks to it instead. A reader that can do neither cannot read its input again, so its rows go to
a log first (`spool/logged_reader.py`).
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from agiledart_connectors.plugins import sink_guarantee, source_guarantee
from agiledart_connectors.sink_guarantees import duplicates_fault
from agiledart_connectors.source_guarantees import follows_file, reads_standard_input, traits_of_source
from agiledart_dataflow.plan.connector_abilities import ReaderAbilities, WriterAbilities
from agiledart_dataflow.plan.connectors import Connector, Reading, SourceReader
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.overload import BLOCK, SPOOL
from agiledart_dataflow.plan.step import Step
from agiledart_executor.spool.logged_reader import LoggedReader
from agiledart_executor.spool.source_log import SourceLog
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.limits import MAX_BATCH_ROWS
from agiledart_recovery.survival import Rewind, rewind_of


def rewind_of_step(step: Step, delivery: Delivery, *, merges: bool = True) -> Rewind:
    """Return what a restarted run reads of a source's rows after its last epoch.

    Rows need a log where the input cannot be read again, where a clock decides which rows are late, and where rows wait on
    the disk in any case. A run that saves less (`Delivery.saves_less`) follows the table of `survival.py`.

    Args:
        step: the source.
        delivery: delivery guarantee of the application.
        merges: rows of several sources are merged by position.

    Raises:
        ConfigurationError: its rows would be lost or duplicated even with a log, and the guarantee refuses that.
    """
    connector, source = step.connector, step.source
    assert connector is not None
    assert source is not None
    guarantee = source_guarantee(connector.kind)
    spools, is_clocked = source.overload.policy == SPOOL, bool(source.clock)
    if not delivery.saves_less:
        _refuse_lossy_source(step, delivery)
        is_gone = guarantee is not None and not guarantee.can_rewind
        return Rewind.LOG if is_gone or spools or is_clocked else Rewind.AGAIN
    sheds = source.overload.policy not in (BLOCK, SPOOL)
    return rewind_of(
        traits_of_source(connector, guarantee, spools=spools, is_clocked=is_clocked, merges=merges and not sheds)
    )


def _refuse_lossy_source(step: Step, delivery: Delivery) -> None:
    """Raise `ConfigurationError` for a source whose rows would be lost or duplicated after a restart even with a log."""
    connector, source = step.connector, step.source
    assert connector is not None
    assert source is not None
    again = f'; submit the application with delivery="survive", or put the rows into files first ({step.name})'
    if reads_standard_input(connector):
        raise ConfigurationError(f"standard input cannot be read again, so {delivery} cannot be promised{again}")
    if follows_file(connector):
        raise ConfigurationError(f"a file that grows and may be rotated cannot be read again from its beginning{again}")
    if source.overload.policy not in (BLOCK, SPOOL) or source.overload.spool_full != BLOCK:
        raise ConfigurationError(
            f"rows that are shed cannot be read again, so {delivery} cannot be promised; take overload=block or spool{again}"
        )


def refuse_duplicate_rows(step: str, connector: Connector, sink: WriterAbilities) -> None:
    """Raise `ConfigurationError` for a sink that can neither abort uncommitted rows nor tolerate duplicates.

    A sink tolerates duplicates when it confirms the arrival of rows and rows that come again do no harm.
    """
    if sink.transactional is not None:
        return
    fault = duplicates_fault(connector, sink_guarantee(connector.kind))
    if not fault and sink.delivery is None:
        fault = "it does not confirm when rows have arrived"
    if fault:
        raise ConfigurationError(
            f"{connector.url()} cannot withdraw rows, so exactly-once cannot be promised; {fault}, or submit the application"
            f' with delivery="survive" ({step})'
        )


def refuse_immovable_sink(step: str, connector: Connector, *, moves: bool) -> None:
    """Raise `ConfigurationError` for a sink that must move when its node is lost although its rows are only on that node."""
    if not moves:
        raise ConfigurationError(
            f'{connector.url()} stays on its node, so on_sink_lost="move" cannot be promised; write to a log (log:NAME), or take'
            f' on_sink_lost="wait" ({step})'
        )


class FastForwardedReader:
    """Reader that skips the lines that were read before a restart.

    Args:
        reader: at the beginning of its input; yields rows, not columns.
        lines: number of its lines to skip.
        wall_ns: wall clock for the reader.

    Raises:
        OperationFailed: the input ends before that, so it is shorter than it was.
    """

    def __init__(self, reader: SourceReader, lines: int, wall_ns: Callable[[], int]) -> None:
        self._reader, self.stamps = reader, reader.stamps
        self._left: Reading | None = None
        passed = 0
        while passed < lines:
            # Read the last lines one by one, so that no reading goes beyond the line to stop at.
            reading = reader.read(max(1, min(lines - passed - MAX_BATCH_ROWS, MAX_BATCH_ROWS)), wall_ns())
            passed += reading.lines
            if passed > lines:
                self._left = _last_lines(reading, passed - lines)
            elif reading.exhausted and passed < lines:
                raise OperationFailed(
                    f"it has only {passed:,} lines, and {lines:,} had been read: it was replaced or cut"
                )
            elif reading.exhausted:
                self._left = Reading([], 0, {}, exhausted=True)
        self._waitable = ReaderAbilities.of(reader).waitable

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """Read like the wrapped reader."""
        left, self._left = self._left, None
        return left if left is not None else self._reader.read(max_rows, wall_ns)

    def fileno(self) -> int | None:
        """Return the descriptor of the wrapped reader."""
        return None if self._waitable is None else self._waitable.fileno()

    def close(self) -> None:
        """Close the wrapped reader."""
        self._reader.close()


def followed_again(
    reader: SourceReader, lines: int, reopen: Callable[[], SourceReader], wall_ns: Callable[[], int]
) -> SourceReader:
    """Return a reader of a growing file that stands behind the lines read before a restart.

    A file that is shorter now was rotated or cut. It is read from its beginning, so that none of its rows is lost.

    Args:
        reader: at the beginning of its input.
        lines: number of its lines to skip.
        reopen: opens its input again.
    """
    passed = 0
    while passed < lines:
        reading = reader.read(min(lines - passed, MAX_BATCH_ROWS), wall_ns())
        if not reading.lines or passed + reading.lines > lines:
            reader.close()
            text = f"its file has fewer than {lines:,} lines now: it was rotated or cut, and is read from its beginning"
            print(text, file=sys.stderr)  # noqa: T201  `agiledart logs` shows what an executor prints
            return reopen()
        passed += reading.lines
    return reader


def _last_lines(reading: Reading, lines: int) -> Reading:
    """Return the part of a reading that its last lines brought: its rows, because the lines before them were malformed."""
    before = reading.lines - lines
    malformed = dict(reading.malformed)
    for reason in list(malformed):
        taken = min(before, malformed[reason])
        malformed[reason] -= taken
        before -= taken
    left_over = {reason: count for reason, count in malformed.items() if count}
    return Reading(reading.rows, lines, left_over, reading.exhausted, reading.drained)


def open_logged_reader(
    step: Step, reader: SourceReader, folder: Path, *, restores: bool, moves: bool = False
) -> LoggedReader:
    """Open the log of a source and return a reader that reads through it.

    Args:
        step: the source.
        reader: of its input.
        folder: of the log.
        restores: the log in the folder belongs to this run; False: it belongs to an earlier run and is deleted.
        moves: the source may continue without the log that it had on another node.

    Raises:
        OperationFailed: the log cannot be opened.
    """
    assert step.connector is not None
    assert step.source is not None
    overload = step.source.overload
    log = SourceLog(folder, overload.spool_bytes, fresh=not restores)
    guarantee = source_guarantee(step.connector.kind)
    is_gone = guarantee is not None and not guarantee.can_rewind
    resume = None if is_gone else (lambda reader, lines: FastForwardedReader(reader, lines, time.time_ns))
    ahead = overload.policy == SPOOL
    return LoggedReader(reader, log, step.row_type, reads_ahead=ahead, resume=resume, moves=moves)
