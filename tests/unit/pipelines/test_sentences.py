"""Sentences for errors of Spark, and for faults that show before Spark starts."""

import builtins
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from agiledart.spark import first_cause
from agiledart_analytics.job_run import spark_errors, spark_sentence
from agiledart_cli.main import run_cli
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines.definitions import PipelineDefinitions, _check_edges
from agiledart_pipelines.edges import TableRead
from agiledart_pipelines.runner import PipelineRunner, _failed
from agiledart_pipelines.sql_files import place_of_error
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
    assert first_cause(text) == spark_sentence(Py4JError(text)) == "java.net.BindException: in use"
    assert spark_sentence(ValueError("")) == "ValueError"


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 4.",
        "Cannot start query with id 1 as another query with same id is already active.",
    ],
)
def test_a_second_query_on_a_checkpoint_is_named(text: str) -> None:
    assert "give each a checkpointLocation of its own" in spark_sentence(ValueError(text))


def test_a_full_disk_of_spark_is_named() -> None:
    text = "Job aborted.\n: java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch.FileDispatcherImpl"
    assert spark_sentence(Py4JError(text)).startswith("Spark cannot write: No space left on device. Free space")


LOST = """<_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "ipv4:127.0.0.1:1: Connection refused"
\tdebug_error_string = "UNAVAILABLE:ipv4:127.0.0.1:1: Connection refused"
>"""
"""As pyspark 4.3 has it when the server's process has ended."""


def test_an_ended_spark_is_named() -> None:
    said = spark_sentence(ValueError(LOST))
    assert said.startswith(
        "Spark does not answer any more (ipv4:127.0.0.1:1: Connection refused): its process has ended"
    )
    error = _failed(PipelineDefinitions("graph"), {}, LOST)
    error.__cause__ = ValueError(LOST)
    assert str(error) == said
    assert PipelineRunner.has_lost_spark(error)


WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):
  File "/taxi/transformations/more.py", line 6, in broken
    return 1 // 0
           ~~^^~~
ZeroDivisionError: integer division or modulo by zero
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""  # noqa: E501
"""As Spark 4.3 has it."""

UNRESOLVED = """Failed to resolve flow: 'spark_catalog.default.{}'.
Error: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nosuch` cannot be resolved. SQLSTATE: 42703;
'Project ['nosuch]
"""
FLOWS = """
Failed to resolve flows in the pipeline.

Flows with errors: spark_catalog.default.gold
Flows that failed due to upstream errors: spark_catalog.default.above
"""


def test_an_error_of_users_code_on_a_worker_is_named_with_its_line() -> None:
    said = spark_sentence(ValueError(WORKER))
    assert said == "ZeroDivisionError: integer division or modulo by zero (/taxi/transformations/more.py:6)"
    plain = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [X] Why. SQLSTATE: 1"
    assert spark_sentence(ValueError(plain)) == "[X] Why. SQLSTATE: 1"


def test_a_flow_that_spark_cannot_resolve_is_named_with_its_reason() -> None:
    definitions = PipelineDefinitions("graph", places={"above": "a.py:1", "gold": "gold.py:7"})
    failures = {name: UNRESOLVED.format(name) for name in ("above", "gold")}
    assert str(_failed(definitions, failures, FLOWS)).startswith("gold.py:7, table gold: [UNRESOLVED_COLUMN.WITH")
    batch = "[INVALID_FLOW_QUERY_TYPE] Flow `spark_catalog`.`default`.`gold` returns an invalid relation type."
    assert str(_failed(definitions, {}, batch)) == f"gold.py:7, table gold: {batch}"
    assert str(_failed(definitions, {}, "[OTHER] Why.")) == "[OTHER] Why."


def test_a_syntax_error_in_a_file_of_sql_has_its_line_and_table() -> None:
    text = (
        "-- x\nCREATE MATERIALIZED VIEW ok AS SELECT 1 AS a;\n\nCREATE MATERIALIZED VIEW bad AS\nSELEC * FROM silver;\n"
    )
    message = "[PARSE_SYNTAX_ERROR] (line 4, pos 0)\n\n== SQL ==\n\n\nCREATE MATERIALIZED VIEW bad AS\nSELEC * FROM silver\n^^^\n"
    assert place_of_error(text, message) == (5, "bad")
    assert place_of_error(text, "[OTHER]") == (0, "")


def test_a_stream_from_a_view_is_refused() -> None:
    edges = {"gold": [TableRead("silver", False)], "late": [TableRead("gold", True)]}
    definitions = PipelineDefinitions("graph", ["silver", "late"], ["gold"], edges, {"late": "late.py:3"})
    with pytest.raises(ConfigurationError, match=r"late\.py:3, table late: it reads the view gold as a stream"):
        _check_edges(definitions)


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


def test_without_java_the_error_names_the_package(
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
