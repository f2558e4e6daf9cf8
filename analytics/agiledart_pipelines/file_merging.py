"""Merging of small files: each update of a streaming table adds some, and readers pay for every one.

Files are merged after an update that has read all of them everywhere, and never while one is planned. The merged rows take the path
of the first file, and the other files leave the list: a stream that has read the first one reads none of them again. The journal of
`file_tables` makes a merge whole after a crash. pyarrow alone does the work, one row group at a time.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from agiledart_pipelines import file_tables
from agiledart_pipelines.project import PipelineProject

if TYPE_CHECKING:
    import pyarrow

MAX_SMALL_FILES: Final = 64
"""Number of small files of a table above which they are merged."""

SMALL_BYTES: Final = 32 << 20
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
    last_schema: pyarrow.Schema | None = None
    size = 0
    for path in files:
        schema = _schema(path)
        if not groups or last_schema is None or not schema.equals(last_schema) or size + _size(path) > MERGED_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(path)
        last_schema, size = schema, size + _size(path)
    return groups


def _write_merged(files: Sequence[Path], target: Path) -> None:
    """Write the rows of files as one, with the schema and the metadata of the first."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetWriter(target, _schema(files[0]), compression="snappy") as writer:
        for path in files:
            with pyarrow.parquet.ParquetFile(path) as part:
                for number in range(part.num_row_groups):
                    writer.write_table(part.read_row_group(number))


def _schema(path: Path) -> "pyarrow.Schema":
    import pyarrow.parquet

    schema: pyarrow.Schema = pyarrow.parquet.read_schema(path)
    return schema


def _size(path: Path) -> int:
    return path.stat().st_size
