"""A project on disk: files of a new one, and messages about faults in it."""

import contextlib
import multiprocessing
import signal
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from agiledart_cli.main import run_cli
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines.backfill import utc_days
from agiledart_pipelines.logs import log_options, time_field_of
from agiledart_pipelines.project import RUNNING, open_project
from agiledart_pipelines.session import JVM, _end, end_orphan, open_session
from agiledart_pipelines.template import PLAIN, write_project

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed (extra [pipeline])")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_project(tmp_path / "taxi", "york,porto", 'identityFile = "reader.identity"')
    return tmp_path / "taxi"


def test_a_new_project_is_read(folder: Path) -> None:
    project = open_project(folder / "transformations")
    assert (project.name, project.database, project.root) == ("taxi", "default", folder)
    assert project.table_folder("bronze") == folder / "state" / "tables" / "bronze"
    identity = str(folder / "reader.identity")
    assert log_options(folder) == {"metadata": "true", "sink": "york,porto", "identityFile": identity}
    assert time_field_of(folder) == "dropoff_at"
    for file in (folder / "transformations").glob("*.py"):
        compile(file.read_text(), str(file), "exec")
    with pytest.raises(ConfigurationError, match="has a pipeline already"):
        write_project(folder, "york", "")


def test_a_plain_project_has_no_gold(tmp_path: Path) -> None:
    files = write_project(tmp_path / "rooms", "temperatures", "", PLAIN, "measured_at")
    assert "gold.py" not in [file.name for file in files]
    assert '"measured_at is not null"' in (tmp_path / "rooms" / "transformations" / "silver.py").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", "cannot be read"),
        ("name: taxi", "needs name: and libraries:"),
        ("name: taxi\nlibraries: [x]\nconfiguration:\n  spark.x: 2", "maps names of settings to texts"),
    ],
)
def test_a_faulty_specification_is_reported(folder: Path, text: str, said: str) -> None:
    (folder / "spark-pipeline.yml").write_text(text)
    with pytest.raises(ConfigurationError, match=said) as caught:
        open_project(folder)
    assert "\n" not in str(caught.value)


def test_a_faulty_file_of_logs_is_reported(folder: Path) -> None:
    file = folder / "agiledart-pipeline.toml"
    file.write_text("[logs")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        log_options(folder)
    file.write_text("sink = 'york'")
    with pytest.raises(ConfigurationError, match=r"needs a table \[logs\]"):
        log_options(folder)
    file.unlink()
    with pytest.raises(ConfigurationError, match="agiledart pipeline init"):
        log_options(folder)


def test_an_error_of_the_disk_is_one_sentence(folder: Path) -> None:
    project = open_project(folder)
    with (
        pytest.raises(OperationFailed, match=f"{project.state}: No space left on device. Mend that"),
        project.file_errors(),
        Path("/dev/full").open("w") as full,
    ):
        full.write("x")
    project.state.write_text("a file where the folder belongs")
    with (
        pytest.raises(OperationFailed, match=f"{project.state}: File exists"),
        project.file_errors(),
        project.locked(),
    ):
        pass


def hold(folder: Path, held: "multiprocessing.Event", end: "multiprocessing.Event") -> None:  # type: ignore[valid-type]
    with open_project(folder).locked():
        held.set()  # type: ignore[attr-defined]
        end.wait(60)  # type: ignore[attr-defined]


def test_two_updates_at_once_are_refused(folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, end = context.Event(), context.Event()
    other = context.Process(target=hold, args=(folder, held, end))
    other.start()
    assert held.wait(60)
    with (
        pytest.raises(OperationFailed, match=rf"Another process \(pid {other.pid}\) updates taxi"),
        open_project(folder).locked(),
    ):
        pass
    end.set()
    other.join()
    with open_project(folder).locked():
        pass


def test_a_folder_without_a_project_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["pipeline", "status", "--project", str(tmp_path)]) == 2
    assert "agiledart pipeline init NAME" in capsys.readouterr().err
    assert run_cli(["pipeline", "run", "--every", "soon"]) == 2
    assert "no span such as 30s" in capsys.readouterr().err
    assert run_cli(["pipeline", "backfill", "monday"]) == 2
    assert "no day such as 2013-01-07" in capsys.readouterr().err


def test_a_project_without_an_update_reports_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["pipeline", "status", "--project", str(folder)]) == 1
    assert "has not been updated yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("catalog: other", "has a catalog of its own"),
        ("database: Taxi", "database: Taxi is no name of small letters"),
        ("database: my-taxi", "database: my-taxi is no name of small letters"),
        ("configuration: {spark.sql.warehouse.dir: /tmp/x}", "warehouse.dir is set by agiledart pipeline itself"),
        ("libaries: []", "has libaries; a specification has name, storage"),
    ],
)
def test_a_field_that_would_be_ignored_is_refused(folder: Path, line: str, said: str) -> None:
    file = folder / "spark-pipeline.yml"
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(ConfigurationError, match=said):
        open_project(folder)


def test_the_jvm_of_a_killed_process_is_ended_and_no_other(folder: Path) -> None:
    project = open_project(folder)
    with project.locked():
        for argument, is_orphan in ((f"-Dderby={project.state}/derby.log", True), ("-Dderby=/other", False)):
            waits = [sys.executable, "-c", "import sys; sys.stdin.read()", argument]
            with subprocess.Popen(waits, stdin=subprocess.PIPE) as other:
                project.write_document(JVM, {"pid": other.pid})
                end_orphan(project)
                assert project.read_document(JVM) is None
                if is_orphan:
                    assert other.wait(10) == -signal.SIGKILL
                else:
                    assert other.poll() is None
        project.write_document(JVM, {"pid": other.pid})  # it has ended
        end_orphan(project)
        assert project.read_document(JVM) is None


def test_a_project_that_was_moved_with_its_state_is_refused(folder: Path) -> None:
    project = open_project(folder)
    with project.locked():
        project.check_place()
        project.check_place()
    link = folder.parent / "link"
    link.symlink_to(folder)
    open_project(link).check_place()
    moved = open_project(folder.rename(folder.parent / "moved"))
    with pytest.raises(
        OperationFailed, match=rf"was moved or copied from {folder}, .* Move it back, or delete .*moved/state"
    ):
        moved.check_place()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--every", "3s", "--metrics", "9470x"], "--metrics 9470x is not HOST:PORT"),
        (["run", "--every", "3s", "--metrics", "localhost:94700"], "--metrics localhost:94700 is not HOST:PORT"),
        (["export", "silver", "FILE"], "is no empty folder. Name a new one"),
        (["train", "tips", "--write", "FILE/no/tips.json"], "name a file in a folder that exists"),
    ],
)
def test_mistakes_in_options_are_named_before_spark_starts(
    folder: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("FILE", str(folder / "spark-pipeline.yml")) for word in arguments]
    assert run_cli(["pipeline", *words, "--project", str(folder)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("zone", "days"), [("UTC", (7, 7)), ("Europe/Berlin", (6, 8))])
def test_a_day_of_another_zone_has_parts_of_three_days_in_utc(zone: str, days: tuple[int, int]) -> None:
    assert tuple(day.day for day in utc_days(date(2013, 1, 7), zone)) == days


class Servers:
    """Servers that stay, without Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_kept = False
        self.stopped: list[Path] = []
        module = "agiledart_pipelines.session."
        monkeypatch.setattr(f"{module}is_server_kept", lambda folder: self.is_kept)
        monkeypatch.setattr(f"{module}stop_server", self.stop)
        monkeypatch.setattr(f"{module}pipeline_session", lambda project, *, short: contextlib.nullcontext("own"))
        monkeypatch.setattr(f"{module}kept_pipeline_session", lambda project: contextlib.nullcontext("kept"))

    def stop(self, folder: Path) -> None:
        self.is_kept = False
        self.stopped.append(folder)


def test_a_session_uses_the_spark_that_was_kept_unless_an_update_still_runs_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, servers = open_project(folder), Servers(monkeypatch)

    def opened(keep: bool = False) -> str:
        with project.locked(), open_session(project, short=True, keep=keep) as session:
            return str(session)

    assert (opened(), opened(keep=True)) == ("own", "kept")
    servers.is_kept = True
    assert opened() == "kept"
    project.write_document(RUNNING, {"pid": 1})  # of a process that was killed
    assert opened() == "own"
    assert len(servers.stopped) == 1
    assert project.read_document(RUNNING) is None


@pytest.mark.parametrize(
    ("libraries", "said"),
    [
        ("transformations/**", "libraries: is a list of"),
        ("[transformations/**]", "libraries: is a list of"),
        ("[glob: {include: transfomations/**}]", "include: transfomations/.* fits no file"),
        ("[glob: {include: transformations/*.py}]", "neither a file nor a folder"),
    ],
)
def test_libraries_name_files_that_exist(folder: Path, libraries: str, said: str) -> None:
    (folder / "spark-pipeline.yml").write_text(f"name: taxi\nlibraries: {libraries}\n")
    with pytest.raises(ConfigurationError, match=said):
        open_project(folder)


def test_another_database_has_a_folder_of_its_own(folder: Path) -> None:
    file = folder / "spark-pipeline.yml"
    file.write_text(f"{file.read_text()}database: taxi_2\n")
    project = open_project(folder)
    assert (project.database, project.libraries) == ("taxi_2", ("transformations/**",))
    assert project.table_folder("bronze") == folder / "state" / "tables" / "taxi_2.db" / "bronze"


class DeadSpark:
    """A context whose JVM was killed."""

    _jvm = None

    def stop(self) -> None:
        raise ConnectionRefusedError


def test_the_end_of_a_session_tolerates_a_killed_jvm() -> None:
    pytest.importorskip("py4j", reason="pyspark is not installed (extra [spark])")
    _end(DeadSpark())
