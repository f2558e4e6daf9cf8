"""Files of streaming tables: the list that Spark's file sink keeps, edited by a journal that may be carried out again."""

import json
from pathlib import Path

import pytest

from agiledart_kernel.errors import OperationFailed
from agiledart_pipelines import file_tables
from agiledart_pipelines.project import PipelineProject


@pytest.fixture
def project(tmp_path: Path) -> PipelineProject:
    made = PipelineProject(tmp_path, tmp_path / "spark-pipeline.yml", "taxi", "default", {})
    folder = made.table_folder("bronze")
    for number, names in enumerate((["a b.parquet", "b.parquet"], ["c.parquet"])):
        (folder / "_spark_metadata").mkdir(parents=True, exist_ok=True)
        entries = []
        for name in names:
            (folder / name).write_text(name)
            uri = f"file://{folder}/{name}".replace(" ", "%20")
            entries.append(json.dumps({"path": uri, "size": 1, "isDir": False, "action": "add"}))
        (folder / "_spark_metadata" / str(number)).write_text("\n".join(["v1", *entries]))
        (folder / "_spark_metadata" / f".{number}.crc").write_text("checksum of Hadoop")
    return made


def names(project: PipelineProject) -> list[str]:
    return [path.name for path in file_tables.live_files(project.table_folder("bronze"))]


def test_a_replacement_keeps_paths_and_can_be_repeated(project: PipelineProject) -> None:
    folder = project.table_folder("bronze")
    contents = project.state / "replacement-1"
    contents.mkdir()
    for step in ("complete", "killed after its first move", "killed before its end"):
        (contents / "new").parent.mkdir(exist_ok=True)
        (contents / "new").write_text(f"content after {step}")
        (folder / "d.parquet").write_text("added")
        (folder / "b.parquet").touch()
        replaced = {str(folder / "a b.parquet"): str(contents / "new"), str(folder / "b.parquet"): ""}
        file_tables.begin_replacement(project, contents, {"bronze": replaced}, {"bronze": [str(folder / "d.parquet")]})
        journal = (project.state / "replacement.json").read_text()
        if step == "killed after its first move":
            (contents / "new").replace(folder / "a b.parquet")
        assert file_tables.finish_replacement(project)
        if step == "killed before its end":
            (project.state / "replacement.json").write_text(journal)
            assert file_tables.finish_replacement(project)
        assert names(project) == ["a b.parquet", "c.parquet", "d.parquet"]
        text = (folder / "a b.parquet").read_text()
        assert text == f"content after {step}"
        [first, *_] = (folder / "_spark_metadata" / "0").read_text().splitlines()[1:]
        assert json.loads(first)["size"] == len(text)
        assert not (folder / "b.parquet").exists()
        assert not list((folder / "_spark_metadata").glob(".*.crc"))  # they no longer fit
    assert not file_tables.finish_replacement(project)


def test_only_the_last_compacted_list_and_those_after_it_count(project: PipelineProject) -> None:
    folder = project.table_folder("bronze") / "_spark_metadata"
    (folder / "1.compact").write_text((folder / "1").read_text())
    assert names(project) == ["c.parquet"]
    (folder / "10").write_text((folder / "0").read_text())
    assert names(project) == ["c.parquet", "a b.parquet", "b.parquet"]


def test_a_list_of_another_version_is_not_touched(project: PipelineProject) -> None:
    (project.table_folder("bronze") / "_spark_metadata" / "1").write_text("v2\n{}")
    with pytest.raises(OperationFailed, match="of a version that is not known"):
        names(project)


def test_a_cleared_table_has_no_file(project: PipelineProject) -> None:
    file_tables.clear_table(project, "bronze")
    assert not list(project.table_folder("bronze").iterdir())
    file_tables.clear_table(project, "none")
