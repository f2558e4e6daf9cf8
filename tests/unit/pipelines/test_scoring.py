"""Models as plain data: scores, and documents that are refused."""

import json
import subprocess
import sys
from typing import Any

import pytest

from agiledart.scoring import ModelDocument, TreeNode, read_model
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines.training import tree_nodes

TEXT = """DecisionTreeRegressionModel: uid=dtr_1, depth=2, numNodes=5, numFeatures=2
  If (feature 0 <= 1.5)
   Predict: 100.25
  Else (feature 0 > 1.5)
   If (feature 1 <= 8.0E-1)
    Predict: -3.0
   Else (feature 1 > 8.0E-1)
    Predict: 7.125
"""
TREE = ModelDocument(1, "tips", "1", "tree", ("miles", "hour"), nodes=tree_nodes(TEXT))


def test_a_tree_of_spark_is_read_and_scored() -> None:
    model = read_model(TREE.text())
    assert model == TREE
    cases = (((1.5, 9), 100.25), ((1.6, 0.8), -3.0), ((1.6, 0.81), 7.125))
    assert [model.score({"miles": miles, "hour": hour}) for (miles, hour), _ in cases] == [value for _, value in cases]
    with pytest.raises(OperationFailed, match="another form"):
        tree_nodes(TEXT.replace("If (feature 1 <= 8.0E-1)", "If (feature 1 in {0.0})"))


def test_a_linear_model_is_scored() -> None:
    model = ModelDocument(1, "durations", "1", "linear", ("miles", "hour"), 60.0, (100.0, -2.0))
    assert read_model(model.text()).score({"hour": 10, "miles": 2.5, "unused": 1}) == 290.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "cannot be read"),
        ({"nodes": [{"feature": 0, "left": 0, "right": 0}]}, "node 0 has a child that does not come after it"),
        ({"nodes": [{"feature": 5, "left": 1, "right": 1}, {"value": 1.0}]}, "a feature that is not there"),
        ({"nodes": []}, "has no nodes"),
        ({"kind": "linear"}, "each feature needs a coefficient"),
        ({"code": "import os"}, "cannot be read"),
    ],
)
def test_a_damaged_model_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_model(json.dumps({**json.loads(TREE.text()), **change}))


def test_scoring_needs_neither_spark_nor_numpy() -> None:
    code = "import sys, agiledart.scoring; print(sorted({'pyspark', 'numpy', 'pickle', 'pyarrow'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"pyspark", "numpy", "pyarrow"}.isdisjoint(ran.stdout)
    assert TreeNode(1.0).feature == -1
