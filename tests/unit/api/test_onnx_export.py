"""Models of plain data as ONNX files: equal scores, and files that ONNX's own checker accepts."""

import pytest

from agiledart.onnx_export import onnx_model
from agiledart.scoring import ModelDocument, TreeNode
from agiledart_dataflow.operators.onnx_model import OnnxModel
from agiledart_examples.felt_temperature import humidex, measurements, trained_model
from agiledart_kernel.randomness import RandomStream

onnx = pytest.importorskip("onnx", reason="no onnx here: pip install onnx")
pytest.importorskip("onnxruntime", reason="no ONNX Runtime here: pip install 'agiledart[onnx]'")


def tree(draw: RandomStream, size: int) -> ModelDocument:
    """A tree of random comparisons over two inputs, with `size` branches."""
    children: list[list[int]] = [[]]
    open_leaves, count = [0], 1
    for _ in range(size):
        node = open_leaves.pop(draw.index(len(open_leaves)))
        children[node] = [count, count + 1]
        children += [[], []]
        open_leaves += [count, count + 1]
        count += 2
    nodes = [
        TreeNode(feature=draw.index(2), at_most=draw.uniform(), left=sons[0], right=sons[1])
        if sons
        else TreeNode(value=draw.uniform() / 3)
        for sons in children
    ]
    return ModelDocument(1, "tree", "1", "tree", ("a", "b"), nodes=tuple(nodes))


@pytest.mark.parametrize("size", [0, 1, 2, 40])
def test_trees_score_equally(size: int) -> None:
    draw = RandomStream(size, "trees")
    model = tree(draw, size)
    data = onnx_model(model)
    onnx.checker.check_model(onnx.load_from_string(data))
    rows = [[draw.uniform(), draw.uniform()] for _ in range(200)]
    rows += [[node.at_most, node.at_most] for node in model.nodes]
    expected = [model.score(dict(zip("ab", row, strict=True))) for row in rows]
    assert OnnxModel(data, 2).scores(rows) == expected


def test_regressions_score_equally() -> None:
    model = trained_model()
    data = onnx_model(model)
    onnx.checker.check_model(onnx.load_from_string(data))
    air, felt = measurements(seed=2)
    scores = OnnxModel(data, 2).scores(air)
    assert scores == pytest.approx([model.score(dict(zip(model.features, row, strict=True))) for row in air], rel=1e-12)
    assert sum(abs(score - one) for score, one in zip(scores, felt, strict=True)) / len(felt) < 1.5
    assert model.score({"celsius": 25, "humidity": 50}) == pytest.approx(humidex(25, 50), abs=1)
