"""A source goes back to where it was at an epoch: its reader is begun anew, and as many lines are let go as had been read by then.

A reader that knows its position is sent there instead. One that can do neither has lost what came: such sources are refused before
the run begins.
"""

from collections.abc import Callable

from agiledart_dataflow.plan.connectors import Connector, Reading, SourceReader
from agiledart_executor.connectors.plugins import source_guarantee
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.limits import MAX_BATCH_ROWS


def refuse_lost_rows(step: str, connector: Connector, *, waits: bool) -> None:
    """Raise `ConfigurationError` for a source whose rows would be lost or doubled when its run is brought back.

    Args:
        waits: rows may wait in a spool or be shed while the mesh is slow.
    """
    guarantee = source_guarantee(connector.kind)
    again = f'; submit the application with delivery="at-most-once", or put the rows into files first ({step})'
    if guarantee is not None and not guarantee.goes_back:
        raise ConfigurationError(f"{connector.kind}: cannot be read again, so exactly-once cannot be promised{again}")
    if connector.path in ("", "-") and connector.kind in ("csv", "jsonl", "lines"):
        raise ConfigurationError(f"standard input cannot be read again, so exactly-once cannot be promised{again}")
    if connector.option("follow", "0") == "1":
        raise ConfigurationError(f"a file that grows and may be rotated cannot be read again from its beginning{again}")
    if waits:
        raise ConfigurationError(f"exactly-once and an overload policy other than block do not go together yet{again}")


def refuse_doubled_rows(step: str, connector: Connector, *, counts_by_epoch: bool) -> None:
    """Raise `ConfigurationError` for a sink that cannot take rows back which were written after the last epoch."""
    if not counts_by_epoch:
        raise ConfigurationError(
            f"{connector.url()} cannot take rows back, so exactly-once cannot be promised; write to a log (log:NAME) or to one"
            f' csv: or jsonl: file without rolling, or submit the application with delivery="at-most-once" ({step})'
        )


class Resumed:
    """A reader that has been brought behind the lines that were read before.

    Args:
        reader: stands at its beginning; gives rows, not columns.
        lines: how many of its lines to let go.
        wall_ns: for the reader.

    Raises:
        OperationFailed: it ends before: what it reads is shorter than it was.
    """

    def __init__(self, reader: SourceReader, lines: int, wall_ns: Callable[[], int]) -> None:
        self._reader, self.stamps = reader, reader.stamps
        self._left: Reading | None = None
        passed = 0
        while passed < lines:
            # The last ones are taken row by row, so that no row behind them is taken along with others.
            reading = reader.read(max(1, min(lines - passed - MAX_BATCH_ROWS, MAX_BATCH_ROWS)), wall_ns())
            passed += reading.lines
            if passed > lines:
                self._left = _behind(reading, passed - lines)
            elif reading.exhausted and passed < lines:
                raise OperationFailed(
                    f"it has only {passed:,} lines, and {lines:,} had been read: it was replaced or cut"
                )
            elif reading.exhausted:
                self._left = Reading([], 0, {}, exhausted=True)
        self.fileno = getattr(reader, "fileno", lambda: None)

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        """As the reader's own."""
        left, self._left = self._left, None
        return left if left is not None else self._reader.read(max_rows, wall_ns)

    def close(self) -> None:
        """As the reader's own."""
        self._reader.close()


def _behind(reading: Reading, lines: int) -> Reading:
    """The part of a reading that its last lines brought: its rows, because those before them were malformed."""
    before = reading.lines - lines
    malformed = dict(reading.malformed)
    for reason in list(malformed):
        taken = min(before, malformed[reason])
        malformed[reason] -= taken
        before -= taken
    kept = {reason: count for reason, count in malformed.items() if count}
    return Reading(reading.rows, lines, kept, reading.exhausted, reading.drained)
