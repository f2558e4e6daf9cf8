"""`score`: results of ONNX models, models that change at their time, and models that are none."""

import os
import resource
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agiledart import Topology, TopologyError, UserCodeError, collect, records, whole_file
from agiledart.testing import run_local
from agiledart_dataflow.operators.model_access import model_reference
from agiledart_dataflow.operators.model_parts import MARK, IncomingModel, PartHeader, model_parts
from agiledart_dataflow.operators.model_scorer import ModelInUse, ModelScorer, model_version
from agiledart_dataflow.operators.onnx_model import BLOCK_ROWS, OnnxModel
from agiledart_executor.user_code.local_models import LocalModels
from agiledart_kernel.randomness import RandomStream

onnx = pytest.importorskip("onnx", reason="no onnx here: pip install onnx")
pytest.importorskip("onnxruntime", reason="no ONNX Runtime here: pip install 'agiledart[onnx]'")


class Air(NamedTuple):
    """Row of the tests."""

    at: int
    temperature: float
    humidity: float | None


class Model(NamedTuple):
    """Model of a control stream."""

    at: int
    data: bytes


def linear(factors: list[float], constant: float) -> bytes:
    """A model that gives factors · values + constant."""
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Add", ["p", "b"], ["y"]),
        ],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [None, len(factors)])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [None, 1])],
        [
            helper.make_tensor("w", TensorProto.DOUBLE, [len(factors), 1], factors),
            helper.make_tensor("b", TensorProto.DOUBLE, [1], [constant]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


TOO_LARGE = msgspec.msgpack.encode(PartHeader(b"d" * 32, 1 << 40, 0, 1 << 20))
FIRST, SECOND = linear([2.0, 0.5], 1.0), linear([-1.0, 3.0], 0.0)
ROWS = [Air(at, float(at % 13), None if at == 7 else at / 4) for at in range(40)]


def data_of(model: Model) -> bytes:
    """The bytes of a model."""
    return model.data


def scored(models: list[Model], parallelism: int = 1, seed: int | None = None, **options: Any) -> list[Any]:
    """Rows with their scores."""
    topology = Topology("air")
    control = topology.source("models", records(models, row_type=Model), event_time=lambda model: model.at)
    rows = topology.source("air", records(ROWS), event_time=lambda row: row.at)
    stream = rows.score(
        "quality", control.map(data_of, returns=bytes), inputs=["temperature", "humidity"], output="quality", **options
    )
    stream.sink("out", collect)
    result: Any = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    return list(result)


@pytest.mark.parametrize(("parallelism", "seed"), [(1, None), (3, 5), (4, 6)])
def test_each_row_is_scored_by_the_model_of_its_time(parallelism: int, seed: int | None) -> None:
    rows = scored([Model(0, FIRST), Model(20, SECOND)], parallelism, seed)
    assert len(rows) == len(ROWS)
    for row in rows:
        is_first = row.at < 20 or (row.at == 20 and row.quality_version == model_version(FIRST))
        assert row.quality_version == model_version(FIRST if is_first else SECOND)
        if row.humidity is None:
            assert row.quality is None
        elif is_first:
            assert row.quality == pytest.approx(2 * row.temperature + 0.5 * row.humidity + 1, rel=1e-12)
        else:
            assert row.quality == pytest.approx(3 * row.humidity - row.temperature, rel=1e-12)


def changed(change: Any) -> bytes:
    """The first model, changed as a document."""
    model = onnx.load_from_string(FIRST)
    change(model)
    return bytes(model.SerializeToString())


def textual(model: Any) -> None:
    """Its output becomes a text for each row."""
    from onnx import TensorProto, helper

    model.graph.node.append(helper.make_node("Cast", ["y"], ["text"], to=TensorProto.STRING))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("text", TensorProto.STRING, [None, 1]))


def column_by_column(model: Any) -> None:
    """It takes each column as an input of its own, as models of data frames do."""
    from onnx import TensorProto, helper

    model.graph.node.insert(0, helper.make_node("Concat", ["celsius", "humidity"], ["x"], axis=1))
    columns = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [None, 1]) for name in ("celsius", "humidity")]
    del model.graph.input[:]
    model.graph.input.extend(columns)


def far_away(model: Any) -> None:
    """Its weights lie in another file."""
    weights = model.graph.initializer[0]
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="/etc/hostname")
    weights.ClearField("double_data")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (textual, r"the model's first output is tensor\(string\), not a number for each row"),
        (column_by_column, "is not one matrix of floats, .* Export it with one input of all columns"),
        (far_away, "no ONNX model: "),
        (lambda model: setattr(model, "ir_version", 99), "no ONNX model: Unsupported model IR version: 99"),
        (lambda model: setattr(model.graph.node[0], "op_type", "Guess"), "no ONNX model: .*Guess"),
        (lambda model: setattr(model.graph.node[0], "domain", "com.users"), "no ONNX model: "),
    ],
)
def test_each_mistake_in_a_model_has_its_message(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnnxModel(changed(change), 2)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"", "no ONNX model"),
        (b"\x80\x04\x95cos\nsystem", "no ONNX model"),
        (FIRST[: len(FIRST) // 2], "no ONNX model"),
        (linear([1.0, 2.0, 3.0], 0.0), "the model takes 3 values, and inputs= names 2"),
    ],
)
def test_a_damaged_model_leaves_the_one_in_use(damaged: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnnxModel(damaged, 2)
    rows = scored([Model(0, FIRST), Model(20, damaged)], on_error="skip")
    assert {row.quality_version for row in rows} == {model_version(FIRST)}
    with pytest.raises(UserCodeError, match=message):
        scored([Model(0, FIRST), Model(20, damaged)])


def test_rows_before_the_first_model_are_refused() -> None:
    assert [row.at for row in scored([Model(30, FIRST)], on_error="skip")] == list(range(30, 40))
    with pytest.raises(UserCodeError, match="no model has come yet"):
        scored([Model(30, FIRST)])


def test_whole_scores_of_a_file(tmp_path: Any) -> None:
    (tmp_path / "quality.onnx").write_bytes(FIRST)
    topology = Topology("air")
    models = topology.reference("models", whole_file(str(tmp_path / "quality.onnx")), rows=bytes)
    rows = topology.source("air", records(ROWS), event_time=lambda row: row.at)
    rows.score("quality", models, inputs=("temperature", "humidity"), returns=int).sink("out", collect)
    result: Any = run_local(topology)
    assert [row.score for row in result if row.humidity is not None][:3] == [1, 3, 5]


def test_mistakes_are_reported_when_the_topology_is_built() -> None:
    def fault(**options: Any) -> str:
        topology = Topology("air")
        models = topology.source("models", records([FIRST], row_type=bytes))
        rows = topology.source("air", records(ROWS))
        given = {"inputs": ["temperature"], **options}
        with pytest.raises(TopologyError) as error:
            rows.score("quality", given.pop("models", models), **given)
        return str(error.value)

    assert "no field 'temp'" in fault(inputs=["temp"])
    assert "inputs is a list" in fault(inputs=[])
    assert "inputs is a list" in fault(inputs="temperature")
    assert "choose another output=" in fault(output="at")
    assert "returns is int or float" in fault(returns=str)
    assert "models is a stream of bytes" in fault(models="quality.onnx")


def test_models_of_scikit_learn_score_equally() -> None:
    """A regression and a tree, converted by skl2onnx where they were trained; the node opens ONNX only."""
    linear_model = pytest.importorskip("sklearn.linear_model", reason="no scikit-learn here: pip install scikit-learn")
    skl2onnx = pytest.importorskip("skl2onnx", reason="no skl2onnx here: pip install skl2onnx")
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType
    from sklearn.tree import DecisionTreeRegressor

    inputs = [[row.temperature, row.humidity] for row in ROWS if row.humidity is not None]
    targets = [3 * a - b + (a * b) % 5 for a, b in inputs]
    for model, kind in (
        (linear_model.LinearRegression(), DoubleTensorType),
        (DecisionTreeRegressor(max_depth=5, random_state=0), FloatTensorType),  # the inputs are whole quarters
    ):
        model.fit(inputs, targets)
        kinds = [("x", kind([None, 2]))]
        data = skl2onnx.convert_sklearn(model, initial_types=kinds, target_opset=17).SerializeToString()
        scores = [row.quality for row in scored([Model(0, data)]) if row.quality is not None]
        assert scores == pytest.approx(list(model.predict(inputs)), rel=1e-6, abs=1e-6)


def test_a_score_does_not_depend_on_the_rows_beside_it() -> None:
    """Batches have any size; a network of three layers in single precision shows another order of additions at once."""
    from onnx import TensorProto, helper

    draw = RandomStream(3, "network")
    weights = [
        [2 * draw.uniform() - 1 for _ in range(rows * columns)] for rows, columns in ((7, 33), (33, 33), (33, 1))
    ]
    shapes = ((7, 33), (33, 33), (33, 1))
    nodes = [
        node
        for layer in range(3)
        for node in (
            helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"p{layer}"]),
            helper.make_node("Tanh", [f"p{layer}"], [f"x{layer + 1}"]),
        )
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [None, 7])],
        [helper.make_tensor_value_info("x3", TensorProto.FLOAT, [None, 1])],
        [helper.make_tensor(f"w{layer}", TensorProto.FLOAT, shapes[layer], weights[layer]) for layer in range(3)],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    model = OnnxModel(data, 7)
    rows = [[4 * draw.uniform() - 2 for _ in range(7)] for _ in range(5 * BLOCK_ROWS)]
    alone = [model.scores([row])[0] for row in rows]
    assert model.scores(rows) == alone
    assert model.scores(rows[5:40]) == alone[5:40]


def test_rows_that_raise_are_skipped_one_by_one() -> None:
    """Infinite scores, which int() refuses."""
    rows = scored([Model(0, linear([0.0, float("inf")], 0.0))], returns=int, on_error="skip")
    assert {row.at for row in rows} == {7}, "only the row without a humidity, which has no score"


def large(width: int, factor: float) -> bytes:
    """A model whose weights fill many bytes: factor · (temperature + humidity), by way of `width` sums."""
    from onnx import TensorProto, helper

    weights = {"spread": ([2, width], [factor] * 2 * width), "gather": ([width, 1], [1.0 / width] * width)}
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "spread"], ["p"]), helper.make_node("MatMul", ["p", "gather"], ["y"])],
        "large",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [None, 2])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [None, 1])],
        [helper.make_tensor(name, TensorProto.DOUBLE, shape, values) for name, (shape, values) in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def test_a_model_of_several_rows_counts_when_it_is_whole(tmp_path: Path) -> None:
    data = large(220_000, 0.5)
    assert len(data) > 5 << 20, "more than a row or a data frame can hold"
    (tmp_path / "large.onnx").write_bytes(data)
    topology = Topology("air")
    models = topology.reference("models", whole_file(str(tmp_path / "large.onnx"), parts=True), rows=bytes)
    rows = topology.source("air", records(ROWS), event_time=lambda row: row.at)
    rows.score("quality", models, inputs=("temperature", "humidity"), output="quality").sink("out", collect)
    for parallelism in (1, 3):
        result: Any = run_local(topology, parallelism=parallelism)
        assert [row.quality_version for row in result] == [model_version(data)] * len(ROWS)
        for row in result:
            wanted = None if row.humidity is None else pytest.approx((row.temperature + row.humidity) / 2)
            assert row.quality == wanted


def test_no_row_meets_half_a_model() -> None:
    """Whole, damaged and incomplete models between rows, under hostile schedules: the last valid one counts."""
    other = large(100_000, 2.0)
    pieces = model_parts(other)
    assert len(pieces) == 3
    damaged = [*pieces[:2], pieces[2][:-1] + b"?"]
    arrivals = [
        (0, [FIRST]),
        (8, pieces[:2]),
        (12, [SECOND]),
        (16, damaged),
        (20, pieces),
        (26, pieces[1:]),
        (30, [b"no"]),
    ]
    models = [Model(at, data) for at, rows in arrivals for data in rows]
    valid = {0: FIRST, 12: SECOND, 20: other}
    for parallelism, seed in ((1, None), (3, 11), (4, 12), (2, 13)):
        rows = scored(models, parallelism, seed, on_error="skip")
        assert len(rows) == len(ROWS), "each row is scored"
        for row in rows:
            if row.at in (0, *valid):
                continue  # of the same time: which of both is first is the source's business
            data = valid[max(at for at in valid if at < row.at)]
            assert row.quality_version == model_version(data), row


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([MARK], "no part of a model"),
        ([MARK + b"\x05nonsense"], "no part of a model"),
        (model_parts(b"x" * (3 << 20))[1:2], "part 2 of 3 of a model came, not part 1"),
        ([MARK + bytes([len(TOO_LARGE)]) + TOO_LARGE], "at most 67,108,864 are taken"),
    ],
)
def test_wrong_parts_are_refused_with_one_message(rows: list[bytes], message: str) -> None:
    incoming = IncomingModel()
    with pytest.raises(ValueError, match=message):
        incoming.taken(rows[0])
    whole = b"y" * (2 << 20)
    assert [incoming.taken(part) for part in model_parts(whole)] == [None, whole]


def test_the_rest_of_a_refused_model_is_dropped_silently() -> None:
    pieces = model_parts(b"x" * (4 << 20))
    incoming = IncomingModel()
    incoming.taken(pieces[0])
    with pytest.raises(ValueError, match="part 3 of 4"):
        incoming.taken(pieces[2])
    assert incoming.taken(pieces[3]) is None
    assert [incoming.taken(piece) for piece in pieces][-1] == b"x" * (4 << 20), "sent again, it counts"


def test_no_telemetry_is_sent(tmp_path: Path) -> None:
    """With telemetry ONNX Runtime warns that a device id cannot be written to this home."""
    (tmp_path / "felt.onnx").write_bytes(FIRST)
    (tmp_path / "air.csv").write_text("0,20.0,50.0\n")
    (tmp_path / "air.yaml").write_text(
        "sources: {air: {from: csv:air.csv, columns: {at: int, temperature: float, humidity: float}, event_time: at}}\n"
        "steps: [{score: {model: felt.onnx, inputs: [temperature, humidity]}}]\n"
        "sinks: {out: {to: 'csv:out.csv'}}\n"
    )
    command = [sys.executable, "-m", "agiledart_cli.main", "run", "air.yaml"]
    environment = {**os.environ, "HOME": "/nonexistent"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "telemetry" not in done.stderr
    assert (tmp_path / "out.csv").read_text() == f"0,20,50,66,{model_version(FIRST)}\n"


def named(data: bytes) -> bytes:
    """The row that names a model by its hash."""
    return b"sha256:" + sha256(data).hexdigest().encode()


def test_a_model_by_hash_scores_like_its_file(tmp_path: Path) -> None:
    for data in (FIRST, SECOND):
        (tmp_path / sha256(data).hexdigest()).write_bytes(data)
    scorer, shared = ModelScorer([0, 1], lambda row, score, version: (score, version), float), ModelInUse()
    scorer.models = LocalModels(tmp_path)
    for data, score in ((FIRST, 4.0), (SECOND, 5.0), (FIRST, 4.0)):
        scorer.on_broadcast(named(data), shared)
        assert scorer.scored([(1.0, 2.0)], shared) == [(score, model_version(data))]
    assert shared.data == FIRST, "the state that survives a node has the model, not only its name"
    for wrong, message in (
        (b"sha256:abc", "no name of a model"),
        (b"sha256:" + b"zz" * 32, "no name of a model"),
        (named(b"another"), "not on this node"),
        (b"no model", "no ONNX model"),
    ):
        with pytest.raises(ValueError, match=message):
            scorer.on_broadcast(wrong, shared)
        assert scorer.scored([(1.0, 2.0)], shared) == [(4.0, model_version(FIRST))]
    assert model_reference(FIRST) is None


def test_a_local_run_has_no_models_by_hash() -> None:
    with pytest.raises(UserCodeError, match=r"only agents have models by hash: here use whole_file"):
        scored([Model(0, FIRST), Model(20, named(SECOND))])


def test_instances_between_two_models_load_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances of a process share the operator; one may still score by the old model."""
    loads: list[bytes] = []

    class Counted(OnnxModel):
        def __init__(self, data: bytes, inputs: int) -> None:
            loads.append(data)
            super().__init__(data, inputs)

    monkeypatch.setattr("agiledart_dataflow.operators.model_scorer.OnnxModel", Counted)
    scorer = ModelScorer([0, 1], lambda row, score, version: version, float)
    old, new = ModelInUse(), ModelInUse()
    scorer.on_broadcast(FIRST, old)
    scorer.on_broadcast(FIRST, new)
    scorer.on_broadcast(SECOND, new)
    for _ in range(5):
        assert scorer.scored([(1.0, 2.0)], old) + scorer.scored([(1.0, 2.0)], new) == [
            model_version(FIRST),
            model_version(SECOND),
        ]
    assert loads == [FIRST, SECOND]


def endless(values: int) -> bytes:
    """A model of few bytes that fills a vector of so many values."""
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [
            helper.make_node(
                "ConstantOfShape", ["size"], ["many"], value=helper.make_tensor("v", TensorProto.DOUBLE, [1], [1.0])
            ),
            helper.make_node("ReduceSum", ["many"], ["sum"], keepdims=1),
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("Add", ["p", "sum"], ["y"]),
        ],
        "endless",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [None, 2])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [None, 1])],
        [
            helper.make_tensor("size", TensorProto.INT64, [1], [values]),
            helper.make_tensor("w", TensorProto.DOUBLE, [2, 1], [1.0, 1.0]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def test_a_model_larger_than_memory_leaves_the_one_in_use(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    scorer, shared = ModelScorer([0, 1], lambda row, score, version: (score, version), float), ModelInUse()
    scorer.models = LocalModels(tmp_path)
    scorer.on_broadcast(endless(10), shared)
    assert scorer.scored([(1.0, 2.0)], shared) == [(13.0, model_version(endless(10)))]
    with pytest.raises(ValueError, match=r"^the model \(\d+ bytes\) needs more memory than this node has$"):
        scorer.on_broadcast(endless(memory // 8), shared)
    assert scorer.scored([(1.0, 2.0)], shared) == [(13.0, model_version(endless(10)))]
    assert resource.getrlimit(resource.RLIMIT_AS) == before
