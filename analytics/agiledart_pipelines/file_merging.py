"""Merging of small files: each update of a streaming table adds some, and readers pay for every one.

Files are merged after an update that has read all of them everywhere, and never while one is planned. The merged rows take the path
of the first file, and the other files leave the list: a stream that has read the first one reads none of them again. The journal of
`file_tables` makes a merge whole after a crash. pyarrow alone does the work, one row group at a time.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from agiledart_pipelines import file_tables
from agiledart_pipelines.project import PipelineProject

if TYPE_CHECKING:
    import pyarrow.parquet

MAX_SMALL_FILES: Final = 64
"""Number of small files of a table above which they are merged."""

SMALL_BYTES: Final = 32 << 20
_INT96: Final = "INT96"
MERGED_BYTES: Final = 128 << 20
"""Greatest size of the files that are merged into one, bytes together."""


def merge_small_files(
    project: PipelineProject,
    tables: Sequence[str],
    report: Callable[[str], None] = lambda line: None,
    most: int = MAX_SMALL_FILES,
) -> list[str]:
    """Merge the small files of tables that have more than `most` of them; return the names of these tables.

    The caller holds the project's lock, and the last update of every table has succeeded.

    Raises OSError when a disk is full; the tables are then as before.
    """
    folder = project.state / f"merge-{uuid4().hex}"
    replaced: dict[str, dict[str, str]] = {}
    counts: dict[str, tuple[int, int]] = {}
    for table in tables:
        small = [path for path in file_tables.live_files(project.table_folder(table)) if _size(path) < SMALL_BYTES]
        groups = [group for group in _groups(small) if len(group) > 1] if len(small) > most else []
        for number, group in enumerate(groups):
            content = folder / table / f"{number}.parquet"
            content.parent.mkdir(parents=True, exist_ok=True)
            _write_merged(group, content)
            changes = replaced.setdefault(table, {})
            changes.update({str(path): "" for path in group[1:]})
            changes[str(group[0])] = str(content)
        if groups:
            counts[table] = (sum(map(len, groups)), len(groups))
    if replaced:
        file_tables.begin_replacement(project, folder, replaced, {})
        file_tables.finish_replacement(project)
    for table, (before, after) in counts.items():
        report(f"  {table:<24} {before:,} small files merged into {after:,}")
    return list(replaced)


def _groups(files: Sequence[Path]) -> list[list[Path]]:
    """Return files in groups of one schema and at most `MERGED_BYTES`, in order."""
    groups: list[list[Path]] = []
    last: tuple[pyarrow.Schema, bool] | None = None
    size = 0
    for path in files:
        layout = _layout(path)
        if layout is None or layout != last or size + _size(path) > MERGED_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(path)
        last, size = layout, size + _size(path)
    return groups


def _write_merged(files: Sequence[Path], target: Path) -> None:
    """Write the rows of files as one, with the schema and the metadata of the first.

    Spark writes times as INT96 (unless it is set otherwise) and does not read them as another type in the same table.
    """
    import pyarrow.parquet

    with _open(files[0]) as first:
        old_times = _INT96 in _physical_types(first)
        options: Any = {"compression": "snappy", "use_deprecated_int96_timestamps": old_times}
        with pyarrow.parquet.ParquetWriter(target, first.schema_arrow, **options) as writer:
            for path in files:
                with _open(path) as part:
                    for number in range(part.num_row_groups):
                        writer.write_table(part.read_row_group(number))


def _open(path: Path) -> "pyarrow.parquet.ParquetFile":
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")


def _physical_types(file: "pyarrow.parquet.ParquetFile") -> list[str]:
    """Return the type of each leaf column as Parquet stores it; times that are no INT96 as `time`."""
    columns = [file.schema.column(number) for number in range(len(file.schema))]
    return [
        "time" if str(column.logical_type).startswith("Timestamp") else str(column.physical_type) for column in columns
    ]


def _layout(path: Path) -> "tuple[pyarrow.Schema, bool] | None":
    """Return what files must have in common to be merged; None for a file with two kinds of times, which is left alone."""
    with _open(path) as file:
        kinds = set(_physical_types(file))
        return None if {_INT96, "time"} <= kinds else (file.schema_arrow, _INT96 in kinds)


def _size(path: Path) -> int:
    return path.stat().st_size
