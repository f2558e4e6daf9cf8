"""Sentences for errors of Spark, and for faults that show before Spark starts."""

import builtins
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from agiledart.spark import first_cause
from agiledart_analytics.job_run import spark_errors, spark_sentence
from agiledart_cli.main import run_cli
from agiledart_kernel.errors import OperationFailed
from agiledart_pipelines.template import write_project

pytest.importorskip("yaml", reason="pyyaml is not installed (extra [pipeline])")


class Py4JError(Exception):
    """An error as Py4J has it."""


Py4JError.__module__ = "py4j.protocol"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_project(tmp_path / "taxi", "york", 'identityFile = "reader.identity"')
    return tmp_path / "taxi"


def test_the_cause_of_an_error_of_java_is_named() -> None:
    text = "An error occurred while calling JavaSparkContext.\n: java.net.BindException: in use\n\tat x"
    assert first_cause(Py4JError(text)) == spark_sentence(Py4JError(text)) == "java.net.BindException: in use"
    assert first_cause(ValueError("")) == "ValueError"


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 4.",
        "Cannot start query with id 1 as another query with same id is already active.",
    ],
)
def test_a_second_query_on_a_checkpoint_is_named(text: str) -> None:
    assert "give each a checkpointLocation of its own" in spark_sentence(ValueError(text))


def test_errors_of_spark_become_sentences_and_others_stay() -> None:
    with pytest.raises(OperationFailed, match=r"^in use$"), spark_errors():
        raise Py4JError("An error occurred.\n: in use\n\tat x")
    with pytest.raises(ZeroDivisionError), spark_errors():
        raise ZeroDivisionError
    refused = OperationFailed("the agent is away")
    with pytest.raises(OperationFailed) as caught, spark_errors():
        raise refused
    assert caught.value is refused


def said_by_a_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert run_cli(["pipeline", "run", "--project", str(folder)]) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def test_without_java_the_error_names_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("grpc", reason="grpcio is not installed (extra [connect])")
    monkeypatch.setattr("agiledart.spark.java_version", lambda java: 0)
    assert "Install one (Debian: apt-get install openjdk-17-jre-headless)" in said_by_a_run(folder, capsys)


@pytest.mark.parametrize("name", ["grpc", "pyarrow"])
def test_a_missing_extra_is_named(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted, *more: None if wanted == name else find(wanted, *more)
    )
    said = said_by_a_run(folder, capsys)
    assert name in said
    assert "pip install 'agiledart[pipeline]'" in said


def test_missing_yaml_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without_yaml(name: str, *more: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    assert "pip install 'agiledart[pipeline]'" in said_by_a_run(folder, capsys)
