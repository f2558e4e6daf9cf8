"""Trained models as files of ONNX, which `stream.score` reads: a regression or a tree, written without the library onnx.

from agiledart.onnx_export import onnx_model
Path("durations.onnx").write_bytes(onnx_model(read_model(text)))

The files follow ONNX's protocol buffers (onnx.proto3): each field is a key, number · 8 + wire type, and a value. Inputs and results
are doubles, so that scores equal those of `ModelDocument.score`.
"""

from collections.abc import Sequence
from struct import pack
from typing import Final

from agiledart.scoring import ModelDocument, TreeNode

IR_VERSION: Final = 9
OPERATORS: Final = 17
ML_OPERATORS: Final = 5
"""First version whose trees take and give doubles."""

ML_DOMAIN: Final = "ai.onnx.ml"
INPUT: Final = "x"
OUTPUT: Final = "y"

_BYTE, _DOUBLE = 2, 11
"""Types of the elements of tensors."""

_INTEGER_ATTRIBUTE, _TENSOR_ATTRIBUTE, _INTEGERS_ATTRIBUTE = 2, 4, 7
_AT_MOST: Final = 0
"""Comparison of a branch: a value of at most the threshold goes to the first son."""


def onnx_model(model: ModelDocument) -> bytes:
    """Return the model as an ONNX file. It has one input, a matrix with a row for each record, and one result for each row."""
    nodes, constants = _linear(model) if model.kind == "linear" else (_tree(model), b"")
    width = len(model.features)
    graph = nodes + _text(2, model.name) + constants + _matrix(11, INPUT, width) + _matrix(12, OUTPUT, 1)
    operators = _message(8, _number(2, OPERATORS)) + _message(8, _text(1, ML_DOMAIN) + _number(2, ML_OPERATORS))
    return _number(1, IR_VERSION) + _text(2, "agiledart") + _message(7, graph) + operators


def _linear(model: ModelDocument) -> tuple[bytes, bytes]:
    """Return the nodes x · weights + intercept, and their constants."""
    nodes = _node("MatMul", (INPUT, "weights"), "products") + _node("Add", ("products", "intercept"), OUTPUT)
    weights = _doubles("weights", model.coefficients, (len(model.features), 1))
    return nodes, _message(5, weights) + _message(5, _doubles("intercept", (model.intercept,)))


def _tree(model: ModelDocument) -> bytes:
    """Return the node of a decision tree. ONNX numbers branches and leaves apart, and a tree has at least one branch."""
    branches = [number for number, node in enumerate(model.nodes) if node.feature >= 0]
    leaves = [number for number, node in enumerate(model.nodes) if node.feature < 0]
    places = {number: place for numbers in (branches, leaves) for place, number in enumerate(numbers)}
    inner = [model.nodes[number] for number in branches] or [TreeNode(feature=0, left=0, right=0)]
    sons = {side: [(node.left, node.right)[side] for node in inner] for side in (0, 1)}
    attributes = (
        _integer_attribute("n_targets", 1),
        _integers_attribute("tree_roots", [0]),
        _integers_attribute("nodes_featureids", [node.feature for node in inner]),
        _tensor_attribute("nodes_splits", _doubles("", [node.at_most for node in inner])),
        _tensor_attribute("nodes_modes", _bytes_tensor(bytes([_AT_MOST] * len(inner)))),
        _integers_attribute("nodes_truenodeids", [places[son] for son in sons[0]]),
        _integers_attribute("nodes_falsenodeids", [places[son] for son in sons[1]]),
        _integers_attribute("nodes_trueleafs", [model.nodes[son].feature < 0 for son in sons[0]]),
        _integers_attribute("nodes_falseleafs", [model.nodes[son].feature < 0 for son in sons[1]]),
        _integers_attribute("leaf_targetids", [0] * len(leaves)),
        _tensor_attribute("leaf_weights", _doubles("", [model.nodes[leaf].value for leaf in leaves])),
    )
    return _node("TreeEnsemble", (INPUT,), OUTPUT, attributes, ML_DOMAIN)


# ---- messages of ONNX


def _node(kind: str, inputs: Sequence[str], output: str, attributes: Sequence[bytes] = (), domain: str = "") -> bytes:
    """Return an operator as a field of a graph."""
    names = b"".join(_text(1, name) for name in inputs) + _text(2, output)
    options = b"".join(_message(5, attribute) for attribute in attributes)
    return _message(1, names + _text(4, kind) + options + (_text(7, domain) if domain else b""))


def _doubles(name: str, values: Sequence[float], shape: Sequence[int] = ()) -> bytes:
    """Return a tensor; without a shape, a list."""
    dimensions = b"".join(_number(1, size) for size in shape or (len(values),))
    data = pack(f"<{len(values)}d", *values)
    return dimensions + _number(2, _DOUBLE) + _text(8, name) + _message(9, data)


def _bytes_tensor(data: bytes) -> bytes:
    return _number(1, len(data)) + _number(2, _BYTE) + _message(9, data)


def _matrix(field: int, name: str, width: int) -> bytes:
    """Return the declaration of a matrix of doubles with any number of rows."""
    shape = _message(1, _text(2, "rows")) + _message(1, _number(1, width))
    kind = _message(1, _number(1, _DOUBLE) + _message(2, shape))
    return _message(field, _text(1, name) + _message(2, kind))


def _integer_attribute(name: str, value: int) -> bytes:
    return _text(1, name) + _number(3, value) + _number(20, _INTEGER_ATTRIBUTE)


def _integers_attribute(name: str, values: Sequence[int]) -> bytes:
    return _text(1, name) + b"".join(_number(8, value) for value in values) + _number(20, _INTEGERS_ATTRIBUTE)


def _tensor_attribute(name: str, tensor: bytes) -> bytes:
    return _text(1, name) + _message(5, tensor) + _number(20, _TENSOR_ATTRIBUTE)


# ---- protocol buffers


def _varint(value: int) -> bytes:
    """Return a non-negative integer in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())
