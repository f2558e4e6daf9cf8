"""Final commit of a log whose writer has ended: commit the rows that the run's register names, and cut off the rest.

The run has ended and no longer needs its writer. If the writer's process or agent died between the register's commit and its own,
readers would otherwise never see the rows of the last checkpoint. Readers of uncommitted rows would see rows of an uncommitted
checkpoint for ever.
"""

from collections.abc import Sequence
from pathlib import Path

from agiledart_sink_log.layout import MAX_REASON_LENGTH, logs_in
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.log_writer import LogOptions, LogWriter


def commit_late(root: Path, log_id: str, application: str, version: int, ends: Sequence[int], why: str = "") -> bool:
    """Commit a log up to these ends. Return False when it is already so, or another run has written the log since.

    Args:
        why: reason of the run's end, shown to readers; empty: it has finished.

    Raises:
        LogBusyError: its writer is still alive.
        OperationFailed: a file cannot be written.
    """
    for directory, description in logs_in(root):
        if (description.log_id, description.application, description.version) != (log_id, application, version):
            continue
        if len(ends) != description.partitions:
            return False
        why = why[:MAX_REASON_LENGTH]
        if description.ended == why and _are_committed(directory, ends):
            return False
        bounds = LogOptions(max_bytes=description.max_bytes, max_age_ms=description.max_age_ms)
        log = LogWriter(
            root,
            description.name,
            bounds,
            description.schema,
            description.fields,
            application,
            version,
            lock_timeout_s=0.0,
            keep=ends,
            ended=why,
            cuts=False,  # rows that a run emitted at once stay
        )
        log.close(commits=False)
        return True
    return False


def _are_committed(directory: Path, ends: Sequence[int]) -> bool:
    """Return whether each partition is committed up to its end and has no rows after it."""
    reader = LogReader(directory)
    known_ends = [reader.ends(number, uncommitted=True) for number in range(reader.description.partitions)]
    return all(
        known.committed >= end and known.latest == known.committed for known, end in zip(known_ends, ends, strict=True)
    )
