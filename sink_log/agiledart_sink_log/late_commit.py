"""The last commit of a log whose writer is gone: its rows are on the disk, and the run's register says that they count.

Whoever wrote is needed no more: the run has ended. Without this the rows of its last epoch would never be seen, where the writer's
process, or its agent, died between the register's word and its own commit.
"""

from collections.abc import Sequence
from pathlib import Path

from agiledart_sink_log.layout import logs_in, partition_directory, read_committed
from agiledart_sink_log.log import LogOptions, LogWriter


def commit_late(root: Path, log_id: str, application: str, version: int, ends: Sequence[int]) -> bool:
    """Commit a log up to these ends. False where there is nothing to do: it is so already, or somebody else has written it since.

    Raises:
        LogBusyError: its writer still lives.
        OperationFailed: a file cannot be written.
    """
    for directory, found in logs_in(root):
        if (found.log_id, found.application, found.version) != (log_id, application, version):
            continue
        if len(ends) != found.partitions:
            return False
        told = [read_committed(partition_directory(directory, number)) for number in range(found.partitions)]
        if all(known is not None and known[1] >= end for known, end in zip(told, ends, strict=True)):
            return False
        bounds = LogOptions(max_bytes=found.max_bytes, max_age_ms=found.max_age_ms)
        log = LogWriter(
            root, found.name, bounds, found.schema, found.fields, application, version, patience=0.0, keep=ends
        )
        log.close(commits=False)
        return True
    return False
