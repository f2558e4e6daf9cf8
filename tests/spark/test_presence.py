"""Says that the tests of the Spark source are left out where pyspark is not installed."""

import pytest

from tests.spark.conftest import HAS_SPARK


def test_spark_is_installed() -> None:
    if not HAS_SPARK:
        pytest.skip("pyspark or pyarrow is not installed, tests/spark is left out:  pip install -e '.[dev,spark]'")
