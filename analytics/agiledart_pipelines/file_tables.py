"""Files of streaming tables: clearing a table, and replacing files of all tables at once.

Spark's file sink lists the files that count in `_spark_metadata`: one file for each micro-batch, a line for each data file. Readers
of Spark follow that list, and streams that read the table know files by their paths. So a file that changes keeps its path. A
replacement is written to a journal first; the journal is carried out to its end, again after a crash, before any update runs.
Each step may be repeated.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from agiledart_kernel.errors import OperationFailed
from agiledart_pipelines.project import PipelineProject

METADATA_FOLDER: Final = "_spark_metadata"
REPLACEMENT: Final = "replacement"
"""Name of the journal: {"tables": {table: {"replaced": {path: path of its new content, or ""}, "added": [paths]}}, "folder": …}."""

_BATCH: Final = re.compile(r"(\d+)(\.compact)?\Z")
_VERSION: Final = "v1"
_UNQUOTED: Final = "/:@!$&'()*+,;=~-._"
"""Characters that Java leaves as they are in the path of a URI."""


def clear_table(project: PipelineProject, table: str) -> None:
    """Delete all files of a table with their list, which would hide new micro-batches of the same numbers."""
    folder = project.table_folder(table)
    if folder.is_dir():
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def live_files(folder: Path) -> list[Path]:
    """Return the files of a table that count, in the order of the list."""
    files = {entry["path"]: None for part in _valid_lists(folder) for entry in _entries(part)}
    return [_path_of(uri) for uri in files]


def begin_replacement(
    project: PipelineProject,
    folder: Path,
    replaced: Mapping[str, Mapping[str, str]],
    added: Mapping[str, Sequence[str]],
) -> None:
    """Write the journal of a replacement.

    Args:
        folder: of the new content; deleted at the end.
        replaced: table → path of a file → path of its new content, "" for none. `added`: table → further files.
    """
    tables = {table: {"replaced": dict(replaced[table]), "added": list(added.get(table, ()))} for table in replaced}
    project.write_document(REPLACEMENT, {"folder": str(folder), "tables": tables})


def finish_replacement(project: PipelineProject) -> bool:
    """Carry out the journal, if there is one, and return whether there was."""
    journal = project.read_document(REPLACEMENT)
    if journal is None:
        return False
    for table, change in journal["tables"].items():
        for path, content in change["replaced"].items():
            if content and Path(content).exists():  # else it was moved before a crash
                Path(content).replace(path)
            (Path(path).parent / f".{Path(path).name}.crc").unlink(missing_ok=True)
        _edit_lists(project.table_folder(table), change["replaced"], change["added"])
    shutil.rmtree(journal["folder"], ignore_errors=True)
    project.write_document(REPLACEMENT, None)
    return True


def _edit_lists(folder: Path, replaced: Mapping[str, str], added: Sequence[str]) -> None:
    """Take emptied files off the list of a table, correct the sizes of changed ones, and put others on it."""
    lists = _valid_lists(folder)
    if not lists:
        if added:
            raise OperationFailed(f"{folder} has no {METADATA_FOLDER}: update the pipeline first.")
        return
    for part in lists:
        entries = []
        for entry in _entries(part):
            path = str(_path_of(entry["path"]))
            if replaced.get(path) == "" or path in added:
                continue
            entries.append({**entry, "size": Path(path).stat().st_size} if path in replaced else entry)
        if part == lists[-1]:
            entries += [_entry(Path(name)) for name in added]
        _write_list(part, entries)
    for path, content in replaced.items():
        if not content:
            Path(path).unlink(missing_ok=True)


def _valid_lists(folder: Path) -> list[Path]:
    """Return the files of the list that Spark reads: the last compacted one and those after it."""
    parts: dict[int, Path] = {}
    for path in (folder / METADATA_FOLDER).glob("[0-9]*"):
        match = _BATCH.match(path.name)
        if match is not None and (match[2] or int(match[1]) not in parts):
            parts[int(match[1])] = path
    ordered = [parts[number] for number in sorted(parts)]
    compacted = [index for index, path in enumerate(ordered) if path.suffix == ".compact"]
    return ordered[compacted[-1] :] if compacted else ordered


def _entries(part: Path) -> list[dict[str, Any]]:
    lines = part.read_text().splitlines()
    if not lines or lines[0] != _VERSION:
        raise OperationFailed(f"{part} is of a version that is not known here ({lines[0] if lines else 'empty'}).")
    return [json.loads(line) for line in lines[1:] if line]


def _entry(path: Path) -> dict[str, Any]:
    about = path.stat()
    return {
        "path": f"file://{quote(str(path), safe=_UNQUOTED)}",
        "size": about.st_size,
        "isDir": False,
        "modificationTime": about.st_mtime_ns // 1_000_000,
        "blockReplication": 1,
        "blockSize": 33_554_432,
        "action": "add",
    }


def _path_of(uri: str) -> Path:
    return Path(unquote(re.sub("^file:/+", "/", uri)))


def _write_list(part: Path, entries: Sequence[dict[str, Any]]) -> None:
    """Replace a file of the list. Its checksum, which no longer fits, goes first: without one Spark checks nothing."""
    temporary = part.parent / f".{part.name}.replacing"
    temporary.write_text("\n".join([_VERSION, *(json.dumps(entry, separators=(",", ":")) for entry in entries)]))
    (part.parent / f".{part.name}.crc").unlink(missing_ok=True)
    temporary.replace(part)
