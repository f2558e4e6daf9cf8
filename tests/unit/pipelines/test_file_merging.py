"""Small files of a table become few: the same rows in the same order, under the path of the first, and whole after a crash."""

import json
from pathlib import Path

import pytest

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

from agiledart_pipelines import file_merging, file_tables  # noqa: E402
from agiledart_pipelines.file_merging import merge_small_files  # noqa: E402
from agiledart_pipelines.project import PipelineProject  # noqa: E402

FILES, ROWS = 7, 5


def project_with(root: Path, schemas: int = 1) -> PipelineProject:
    """Return a project whose table bronze has one file for each micro-batch, with numbered rows."""
    made = PipelineProject(root, root / "spark-pipeline.yml", "taxi", "default", {})
    folder = made.table_folder("bronze")
    (folder / "_spark_metadata").mkdir(parents=True)
    for number in range(FILES):
        path = folder / f"part-{number}.parquet"
        name = "number" if number < FILES - schemas + 1 else f"other{number}"
        parquet.write_table(pyarrow.table({name: range(number * ROWS, (number + 1) * ROWS)}), path)
        entry = {
            "path": f"file://{path}",
            "size": path.stat().st_size,
            "isDir": False,
            "modificationTime": 1_000 + number,
        }
        (folder / "_spark_metadata" / str(number)).write_text("\n".join(["v1", json.dumps(entry)]))
    return made


def rows(project: PipelineProject) -> list[int]:
    files = file_tables.live_files(project.table_folder("bronze"))
    return [value for path in files for value in parquet.read_table(path).column(0).to_pylist()]


def test_merged_rows_stay_the_same_under_the_first_path(tmp_path: Path) -> None:
    project = project_with(tmp_path)
    lines: list[str] = []
    assert merge_small_files(project, ["bronze"], lines.append, most=3) == ["bronze"]
    folder = project.table_folder("bronze")
    assert file_tables.live_files(folder) == [folder / "part-0.parquet"]
    assert sorted(folder.glob("*.parquet")) == [folder / "part-0.parquet"]
    assert rows(project) == list(range(FILES * ROWS))
    entries = [json.loads(line) for line in (folder / "_spark_metadata" / "0").read_text().splitlines()[1:]]
    assert [(entry["size"], entry["modificationTime"]) for entry in entries] == [
        ((folder / "part-0.parquet").stat().st_size, 1_000)
    ]
    assert not list(project.state.glob("merge-*"))
    assert lines == ["  bronze                   7 small files merged into 1"]


def test_few_or_large_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_with(tmp_path)
    assert merge_small_files(project, ["bronze"], most=FILES) == []
    monkeypatch.setattr(file_merging, "SMALL_BYTES", 10)
    assert merge_small_files(project, ["bronze"], most=1) == []
    assert len(file_tables.live_files(project.table_folder("bronze"))) == FILES


def test_a_merged_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_with(tmp_path)
    size = file_tables.live_files(project.table_folder("bronze"))[0].stat().st_size
    monkeypatch.setattr(file_merging, "MERGED_BYTES", size * 3 + 10)
    merge_small_files(project, ["bronze"], most=1)
    assert len(file_tables.live_files(project.table_folder("bronze"))) == 3
    assert rows(project) == list(range(FILES * ROWS))


def test_files_of_different_schemas_are_not_merged(tmp_path: Path) -> None:
    project = project_with(tmp_path, schemas=3)
    merge_small_files(project, ["bronze"], most=1)
    names = [path.name for path in file_tables.live_files(project.table_folder("bronze"))]
    assert names == ["part-0.parquet", "part-5.parquet", "part-6.parquet"]
    assert rows(project) == list(range(FILES * ROWS))


def test_a_merge_is_whole_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_with(tmp_path)
    with monkeypatch.context() as killed:
        killed.setattr(file_tables, "finish_replacement", lambda project: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            merge_small_files(project, ["bronze"], most=1)
    assert rows(project) == list(range(FILES * ROWS))  # nothing has changed yet
    assert file_tables.finish_replacement(project)  # as the next update does
    assert rows(project) == list(range(FILES * ROWS))
    assert len(file_tables.live_files(project.table_folder("bronze"))) == 1


@pytest.mark.parametrize("is_int96", [True, False])
def test_times_keep_the_type_that_spark_has_written(tmp_path: Path, *, is_int96: bool) -> None:
    """A table of INT96 with a file of another type cannot be read by Spark any more."""
    project = project_with(tmp_path)
    times = pyarrow.array([0, 1_357_000_000_123_456, None], pyarrow.timestamp("us", tz="UTC"))
    for path in file_tables.live_files(project.table_folder("bronze")):
        parquet.write_table(pyarrow.table({"at": times}), path, use_deprecated_int96_timestamps=is_int96)
    merge_small_files(project, ["bronze"], most=1)
    (path,) = file_tables.live_files(project.table_folder("bronze"))
    file = parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
    assert file.schema.column(0).physical_type == ("INT96" if is_int96 else "INT64")
    microseconds = file.read().column(0).cast(pyarrow.int64()).to_pylist()
    assert microseconds == [0, 1_357_000_000_123_456, None] * FILES


def test_a_file_with_two_kinds_of_times_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = project_with(tmp_path)
    monkeypatch.setattr(file_merging, "_physical_types", lambda file: ["INT96", "time"])
    assert merge_small_files(project, ["bronze"], most=1) == []
    assert rows(project) == list(range(FILES * ROWS))
