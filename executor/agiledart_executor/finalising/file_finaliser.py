"""Finalising of the output files of an ended run, which will not be restarted: the last files get their final names.

Files before the committed end are whole. The file that holds the committed end is cut there (a Parquet file is written from its
kept rows), and later files are deleted. A second call changes nothing.
"""

import time
from pathlib import Path
from typing import NamedTuple

from agiledart_connectors.files.parquet_writer import GROUP_ROWS
from agiledart_connectors.files.pending_files import PendingFiles
from agiledart_connectors.files.pending_parquet_writer import PendingParquetWriter, row_count
from agiledart_connectors.files.pending_place import PendingPlace
from agiledart_connectors.files.seals import OutputFileChangedError
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_kernel.errors import OperationFailed


class EmptyRow(NamedTuple):
    """Row type without fields, for a writer that gets no more rows."""


def finalise_files(place: PendingPlace, ends: tuple[int, ...]) -> None:
    """Finalise a sink's files up to its committed end.

    Raises:
        OutputFileChangedError: another program has changed them.
        OperationFailed: they are still being written, or the disk refuses the change; a later call may succeed.
    """
    if len(ends) != 2:
        raise OutputFileChangedError(f"{place.path}: the committed end does not name a rolled file")
    number, committed_end = ends
    owner = place.run, place.step
    files = PendingFiles(
        place.path, int(place.rolls), 0, time.monotonic_ns, *owner, (number, committed_end), place.seal
    )
    last = files.rows(number) if place.kind == "parquet" else files.part(number)
    if not committed_end or (not last.exists() and files.final(number).exists()):
        return  # no row of the last file is committed, or the file has its final name already
    if place.kind == "parquet":
        _end_parquet(files, number)
    else:
        _end_lines(files, number)


def _end_lines(files: PendingFiles, number: int) -> None:
    with files.open_current(files.part) as file:
        files.sync(file)
    files.next()
    files.finish_before(number + 1)


def _end_parquet(files: PendingFiles, number: int) -> None:
    writer = PendingParquetWriter(files, EmptyRow, LatencyRecorder(EmptyRow, time.time_ns), GROUP_ROWS)
    try:
        writer.at_end_of_input()
    finally:
        writer.close()
    part, final = files.part(number), files.final(number)
    if final.exists() and _are_same(part, final):
        files.remove(number)  # an earlier call has named the file, but not deleted its rows
    else:
        files.finish_before(number + 1)


def _are_same(part: Path, final: Path) -> bool:
    try:
        return row_count(part) == row_count(final)
    except OperationFailed:
        return False
