"""The end of a log whose writer is gone: what the run's register says that counts is committed, what lies behind goes.

Whoever wrote is needed no more: the run has ended. Without this the rows of its last epoch would never be seen, where the writer's
process, or its agent, died between the register's word and its own commit; and rows of an epoch that never was would be shown for
ever to those who read what is not committed.
"""

from collections.abc import Sequence
from pathlib import Path

from agiledart_sink_log.layout import MAX_REASON_LENGTH, logs_in
from agiledart_sink_log.log_reader import LogReader
from agiledart_sink_log.log_writer import LogOptions, LogWriter


def commit_late(root: Path, log_id: str, application: str, version: int, ends: Sequence[int], why: str = "") -> bool:
    """Commit a log up to these ends. False where there is nothing to do: it is so already, or somebody else has written it since.

    Args:
        why: the run ended, which readers are told; empty: it has finished.

    Raises:
        LogBusyError: its writer still lives.
        OperationFailed: a file cannot be written.
    """
    for directory, found in logs_in(root):
        if (found.log_id, found.application, found.version) != (log_id, application, version):
            continue
        if len(ends) != found.partitions:
            return False
        why = why[:MAX_REASON_LENGTH]
        if found.ended == why and _are_committed(directory, ends):
            return False
        bounds = LogOptions(max_bytes=found.max_bytes, max_age_ms=found.max_age_ms)
        log = LogWriter(
            root,
            found.name,
            bounds,
            found.schema,
            found.fields,
            application,
            version,
            lock_timeout_s=0.0,
            keep=ends,
            ended=why,
            cuts=False,  # what a run has shown that takes no rows back stays
        )
        log.close(commits=False)
        return True
    return False


def _are_committed(directory: Path, ends: Sequence[int]) -> bool:
    """Whether each partition ends there, with nothing behind."""
    reader = LogReader(directory)
    found = [reader.ends(number, uncommitted=True) for number in range(reader.description.partitions)]
    return all(one.committed >= end and one.latest == one.committed for one, end in zip(found, ends, strict=True))
