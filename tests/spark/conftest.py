"""Without pyspark only `test_presence` is collected; it says, visibly, what is left out."""

import importlib.util
from collections.abc import Iterator

import pytest

HAS_SPARK = importlib.util.find_spec("pyspark") is not None and importlib.util.find_spec("pyarrow") is not None

collect_ignore_glob = [] if HAS_SPARK else ["test_[!p]*.py"]


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
    session = spark_session("tests", master="local[2,4]", config={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
