"""Training at the edge: weights, centres and trees equal those of references that know all rows at once."""

from collections.abc import Sequence
from math import dist, fsum
from typing import Any, NamedTuple

import pytest

from agiledart import Topology, UserCodeError, collect, records
from agiledart.learning import (
    BatchTraining,
    ClusteredPoint,
    LabelledExample,
    LearnedModel,
    Point,
    RecursiveLeastSquares,
    StreamingKMeans,
)
from agiledart.onnx_export import onnx_model
from agiledart.scoring import read_model
from agiledart.testing import run_local
from agiledart_dataflow.operators.onnx_model import OnnxModel
from agiledart_kernel.randomness import RandomStream

np = pytest.importorskip("numpy", reason="no numpy here: pip install 'agiledart[columns]'")

FEATURES = ("celsius", "humidity")
SCHEDULES = [(1, None), (3, 4), (4, 9)]


class Air(NamedTuple):
    """Row to score."""

    celsius: float
    humidity: float
    target: float


def air_of(row: LabelledExample) -> Air:
    """The columns of an example."""
    return Air(row.features[0], row.features[1], row.target)


def examples(count: int, keys: str = "ab") -> list[LabelledExample]:
    """Noisy examples of a line of its own for each key."""
    draw = RandomStream(7, "examples")
    rows = []
    for number in range(count):
        key = keys[number % len(keys)]
        values = [20 + 10 * draw.uniform(), 40 + 30 * draw.uniform()]
        slope = 1.5 if key == "a" else -0.5
        rows.append(LabelledExample(key, values, slope * values[0] + 0.2 * values[1] - 3 + draw.uniform()))
    return rows


def learned(rows: Sequence[Any], operator: Any, parallelism: int = 1, seed: int | None = None) -> list[Any]:
    """Output rows of a step with one model for each key, by key."""
    topology = Topology("learn")
    stream = topology.source("rows", records(list(rows)))
    stream.key_by(lambda row: row.key, returns=str).stateful("learn", operator).sink("out", collect)
    found: Any = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    return sorted(found, key=lambda row: row.key)


@pytest.mark.parametrize(("parallelism", "seed"), SCHEDULES)
@pytest.mark.parametrize("memory", [1.0, 0.98])
def test_recursive_least_squares_solve_the_weighted_problem(memory: float, parallelism: int, seed: int | None) -> None:
    rows = examples(240)
    operator = RecursiveLeastSquares(FEATURES, every=40, memory=memory, ridge=1e-3)
    models: list[LearnedModel] = learned(rows, operator, parallelism, seed)
    assert [(row.key, row.examples) for row in models] == [(key, 40 * n) for key in "ab" for n in (1, 2, 3)]
    for row in models:
        mine = [example for example in rows if example.key == row.key][: row.examples]
        inputs = np.array([[*example.features, 1.0] for example in mine])
        weights = memory ** np.arange(len(mine) - 1, -1, -1)
        left = inputs.T @ (weights[:, None] * inputs) + memory ** len(mine) * 1e-3 * np.eye(3)
        right = inputs.T @ (weights * np.array([example.target for example in mine]))
        model = read_model(row.model)
        assert [*model.coefficients, model.intercept] == pytest.approx(np.linalg.solve(left, right), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("parallelism", "seed"), SCHEDULES)
def test_each_centre_is_the_mean_of_its_points(parallelism: int, seed: int | None) -> None:
    draw = RandomStream(5, "points")
    middles = {"a": [(0.0, 0.0), (10.0, 0.0), (0.0, 10.0)], "b": [(5.0, 5.0), (-5.0, 5.0), (9.0, -9.0)]}
    points = []
    for number in range(300):
        key = "ab"[number % 2]
        east, north = draw.choice(middles[key])
        points.append(Point(key, [east + draw.uniform(), north + draw.uniform()]))
    rows: list[ClusteredPoint] = learned(points, StreamingKMeans(3), parallelism, seed)
    for key in "ab":
        mine = [row for row in rows if row.key == key]
        assert [row.values for row in mine] == [point.values for point in points if point.key == key]
        centres: dict[int, list[float]] = {}
        members: dict[int, list[list[float]]] = {}
        for row in mine:
            if row.cluster in centres:
                assert row.distance == pytest.approx(min(dist(centre, row.values) for centre in centres.values()))
            members.setdefault(row.cluster, []).append(row.values)
            centres[row.cluster] = row.centre
            means = [fsum(axis) / len(axis) for axis in zip(*members[row.cluster], strict=True)]
            assert row.centre == pytest.approx(means, rel=1e-12, abs=1e-12)
        assert len(centres) == 3


def test_centres_with_a_memory_follow_the_stream() -> None:
    points = [Point("a", [0.0]), Point("a", [100.0]), *[Point("a", [90.0])] * 200]
    follows = learned(points, StreamingKMeans(2, memory=0.9))[-1]
    stays = learned(points[:12], StreamingKMeans(2))[-1]
    assert follows.centre == pytest.approx([90.0], abs=1e-6)
    assert stays.centre == pytest.approx([(100.0 + 10 * 90.0) / 11])


@pytest.mark.parametrize("kind", ["linear", "tree"])
def test_models_of_batches_predict_as_scikit_learn_does(kind: Any) -> None:
    pytest.importorskip("sklearn", reason="no scikit-learn here: pip install 'agiledart[ml]'")
    pytest.importorskip("onnxruntime", reason="no ONNX Runtime here: pip install 'agiledart[onnx]'")
    from sklearn.linear_model import LinearRegression
    from sklearn.tree import DecisionTreeRegressor

    rows = [row._replace(features=[float(np.float32(value)) for value in row.features]) for row in examples(500)]
    models: list[LearnedModel] = learned(rows, BatchTraining(kind, FEATURES, size=100, max_depth=6))
    assert [(row.key, row.examples) for row in models] == [("a", 100), ("a", 200), ("b", 100), ("b", 200)]
    for row in models:
        batch = [example for example in rows if example.key == row.key][row.examples - 100 : row.examples]
        inputs, targets = [example.features for example in batch], [example.target for example in batch]
        fit = LinearRegression() if kind == "linear" else DecisionTreeRegressor(max_depth=6, random_state=0)
        expected = fit.fit(inputs, targets).predict(inputs)
        model = read_model(row.model)
        scores = [model.score(dict(zip(FEATURES, values, strict=True))) for values in inputs]
        assert scores == pytest.approx(expected, rel=1e-9)
        assert OnnxModel(onnx_model(model), 2).scores(inputs) == pytest.approx(expected, rel=1e-6)


def test_a_model_that_learns_scores_the_same_stream() -> None:
    """Trained, written as ONNX, and in use from the next row on."""
    pytest.importorskip("onnxruntime", reason="no ONNX Runtime here: pip install 'agiledart[onnx]'")
    topology = Topology("online")
    rows = topology.source("rows", records(examples(60, "a")))
    models = rows.key_by(lambda row: row.key, returns=str).stateful("learn", RecursiveLeastSquares(FEATURES, every=20))
    files = models.map(lambda row: onnx_model(read_model(row.model)), "file", returns=bytes)
    air = rows.map(air_of, "air", returns=Air)
    air.score("predicted", files, inputs=FEATURES, on_error="skip").sink("out", collect)
    found: Any = run_local(topology)
    assert len(found) == 40, "the first 20 rows come before the first model"
    versions = [row.score_version for row in found]
    assert len(set(versions[:20])) == len(set(versions[20:])) == 1
    assert versions[0] != versions[20]
    assert max(abs(row.score - row.target) for row in found) < 1.5


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (LabelledExample("a", [1.0], 2.0), "an example has 1 values, not 2"),
        (LabelledExample("a", [1.0, float("nan")], 2.0), "not finite"),
        (LabelledExample("a", [1.0, 2.0], float("inf")), "not finite"),
    ],
)
def test_an_unsuitable_example_changes_no_model(row: LabelledExample, message: str) -> None:
    with pytest.raises(UserCodeError, match=message):
        learned([row], RecursiveLeastSquares(FEATURES))


def test_unsuitable_settings_are_refused() -> None:
    for make in (
        lambda: RecursiveLeastSquares(()),
        lambda: RecursiveLeastSquares(FEATURES, memory=0.0),
        lambda: StreamingKMeans(0),
        lambda: BatchTraining("forest", FEATURES),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"at least|above"):
            make()
