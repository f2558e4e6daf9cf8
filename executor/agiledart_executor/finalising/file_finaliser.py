"""Gives the last files of a run that has ended their names: of a run that is brought back no more, nobody else does.

Files before the committed end are whole. The one that it lies in is cut back there (a Parquet file is made from the rows that are
kept of it), and what lies behind goes. Doing it twice changes nothing.
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
    """None is written any more."""


def finalise_files(place: PendingPlace, ends: tuple[int, ...]) -> None:
    """Finish a sink's files up to this end.

    Raises:
        SpoiltFile: somebody else has changed them.
        OperationFailed: they are still being written, or their disk does not take it: to be tried again.
    """
    if len(ends) != 2:
        raise OutputFileChangedError(f"{place.path}: what was committed of it was no file that is rolled")
    number, kept = ends
    whose = place.run, place.step
    files = PendingFiles(place.path, int(place.rolls), 0, time.monotonic_ns, *whose, (number, kept), place.seal)
    held = files.rows(number) if place.kind == "parquet" else files.part(number)
    if not kept or (not held.exists() and files.final(number).exists()):
        return  # nothing is committed of the last one, or it has its name
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
        files.remove(number)  # it was named, and its rows were still there
    else:
        files.finish_before(number + 1)


def _are_same(part: Path, final: Path) -> bool:
    try:
        return row_count(part) == row_count(final)
    except OperationFailed:
        return False
