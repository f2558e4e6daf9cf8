"""Without pyspark only `test_presence` is collected; it says, visibly, what is left out."""

import importlib.util
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HAS_SPARK = importlib.util.find_spec("pyspark") is not None and importlib.util.find_spec("pyarrow") is not None

collect_ignore_glob = [] if HAS_SPARK else ["test_[!p]*.py"]

REPORT = "AGILEDART_KILLS_REPORT"
"""Environment variable: a file for what each round of `test_kills` did, as JSON."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark/" in str(item.path) and item.path.name != "test_presence.py":
            item.add_marker(pytest.mark.needs_spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One session for the run: starting it takes seconds."""
    from agiledart.spark import find_java, spark_session
    from agiledart_kernel.errors import OperationFailed

    try:
        find_java()
    except OperationFailed as error:
        pytest.skip(str(error))
    interrupted = signal.getsignal(signal.SIGINT)
    session = spark_session("tests", master="local[2,4]", config={"spark.sql.shuffle.partitions": "2"}, short=True)
    signal.signal(signal.SIGINT, interrupted)  # Spark puts its own there, and tests of Ctrl-C run in this process, too
    yield session
    session.stop()


@pytest.fixture
def same_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of this process take the session of the tests, and do not end it."""
    monkeypatch.setattr("agiledart.spark.spark_session", lambda *arguments, **options: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A log of clean trips whose application has ended; read, never written, by the tests of this run."""
    from tests.spark.written import written_log

    with written_log(tmp_path_factory.mktemp("written")) as made:
        yield made


@pytest.fixture(scope="session")
def keep_round() -> Callable[[Any], None]:
    """Takes what a round of kills did: a line for people, and the file that the environment names, which gets it added."""
    file = Path(os.environ[REPORT]).absolute() if os.environ.get(REPORT) else None
    known = json.loads(file.read_text()) if file is not None and file.exists() else []
    rounds = {(former["victim"], former["seed"]): former for former in known}

    def keep(done: Any) -> None:
        rounds[done.victim, done.seed] = done.document()
        print(done)
        if file is not None:
            file.write_text(json.dumps(list(rounds.values()), indent=1) + "\n")

    return keep
