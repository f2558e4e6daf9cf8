"""PRED of RIoTBench: decision tree, regression, and the regression's error in units of the sensor's last block average."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agiledart import BroadcastOperator, Context, Sink, Source, Topology, csv, lines, plugin
from agiledart_examples.riotbench.estimators import BlockAverage
from agiledart_examples.riotbench.messages import NumberedMessage, numbered_messages
from agiledart_examples.riotbench.workloads import CITY, TAXI, StreamSettings


class Estimate(NamedTuple):
    """Result for a message; None where a value is missing.

    Attributes:
        message, id: number of the message and its sensor.
        class_index: class of the decision tree, and its name.
        regression: predicted value of the target; `truncated` is its whole part.
        average: mean of the sensor's last complete block of ten values of the target.
        error: (observed - regression) / average; None before the first block.
    """

    message: int
    id: str
    class_index: int | None
    class_name: str | None
    regression: float | None
    truncated: int | None
    average: float | None
    error: float | None


@dataclass
class Models:
    """Models in use, as plain data.

    Attributes:
        lines: lines of the file of models so far; the models are read when the last one has come.
        tree: nested dicts: `attr`, `split`, two `sons`; a leaf has `class_index`.
        classes: names of the classes.
        selected: attributes that the regression uses, by their places among the inputs.
        coefficients: of these attributes, then the constant.
    """

    lines: list[str] = field(default_factory=list)
    tree: dict[str, Any] = field(default_factory=dict)
    classes: list[str] = field(default_factory=list)
    selected: list[int] = field(default_factory=list)
    coefficients: list[float] = field(default_factory=list)


class Predictor(BroadcastOperator[str, NumberedMessage, BlockAverage, Estimate, str, Models]):
    """Estimates for each message, by the models of the broadcast stream; state of a sensor: its block average.

    Args:
        workload: names the target and the inputs.
        prefix: beginning of the names of the two models, such as `CITY`.
    """

    def __init__(self, workload: StreamSettings, prefix: str) -> None:
        self._workload, self._prefix = workload, prefix
        self._inputs = [workload.fields.index(name) for name in workload.inputs]
        self._target = workload.fields.index(workload.target)

    def initial(self, key: str) -> BlockAverage:
        return BlockAverage()

    def initial_shared(self) -> Models:
        return Models()

    def on_broadcast(self, record: str, shared: Models) -> None:
        """Take a line of the file of models; the last one closes the object that the first one opens."""
        shared.lines.append(record)
        if record.rstrip() != "}" and not (record.startswith("{") and record.endswith("}")):
            return
        models = json.loads("\n".join(shared.lines))["models"]
        shared.lines.clear()
        tree = models[next(name for name in models if name.startswith(f"{self._prefix}-DTC-"))]
        regression = models[next(name for name in models if name.startswith(f"{self._prefix}-MLR-"))]
        shared.tree, shared.classes = tree["tree"], tree["attributes"][tree["class_index_attr"]]["values"]
        shared.selected = [i for i, is_used in enumerate(regression["selected"]) if is_used]
        shared.coefficients = regression["coefficients"]

    def on_record(self, key: str, record: NumberedMessage, state: BlockAverage, context: Context[Estimate]) -> None:
        values = record.message.values
        inputs = [values[place] for place in self._inputs]
        models: Models = context.shared
        class_index = _class(models.tree, inputs)
        regression = _regression(models, inputs)
        observed = values[self._target]
        if observed is not None:
            state.update(observed, self._workload.average)
        error = None
        if state.last and observed is not None and regression is not None:
            error = (observed - regression) / state.last
        context.emit(
            Estimate(
                record.number,
                key,
                class_index,
                None if class_index is None else models.classes[class_index],
                regression,
                None if regression is None else int(regression),
                state.last,
                error,
            )
        )


def _class(node: dict[str, Any], inputs: list[float | None]) -> int | None:
    """Return the class that a tree gives; None without a tree, or where a value on the path is missing."""
    while node and not node["leaf"]:
        value = inputs[node["attr"]]
        if value is None:
            return None
        node = node["sons"][0 if value <= node["split"] else 1]
    return int(node["class_index"]) if node else None


def _regression(models: Models, inputs: list[float | None]) -> float | None:
    """Return the predicted value; None without a model, or where a value is missing."""
    if not models.coefficients:
        return None
    *factors, constant = models.coefficients
    total = constant
    for place, factor in zip(models.selected, factors, strict=True):
        value = inputs[place]
        if value is None:
            return None
        total += factor * value
    return float(total)


def sensor_of(row: NumberedMessage) -> str:
    """Return the key of the estimates."""
    return row.message.id


def _pred(workload: StreamSettings, messages: Source[str], models: str, estimates: Any) -> Topology:
    topology = Topology(f"pred-{workload.name}")
    file = plugin("example", stream="models") if models == "" else lines(str(models))
    (
        numbered_messages(topology, messages, workload)
        .key_by(sensor_of)
        .connect(topology.reference("models", file, rows=str))
        .stateful("predict", Predictor(workload, workload.name.upper()))
        .sink("estimates", estimates)
    )
    return topology


def pred_city(
    messages: Source[str] = plugin("example", stream="city"),  # noqa: B008  a connector is a value
    models: str = "",
    estimates: Sink[Estimate] = csv("pred-city.csv"),  # noqa: B008  as above
) -> Topology:
    """Build PRED over sensors of cities: the class of the air, and its quality by regression.

    Args:
        messages: lines `milliseconds,SenML`.
        models: path of `models_decoded.json` on the node that reads it; empty: those of the generator.
        estimates: sink of one row for each message.
    """
    return _pred(CITY, messages, models, estimates)


def pred_taxi(
    messages: Source[str] = plugin("example", stream="taxi"),  # noqa: B008  a connector is a value
    models: str = "",
    estimates: Sink[Estimate] = csv("pred-taxi.csv"),  # noqa: B008  as above
) -> Topology:
    """Build PRED over taxi trips: the class of a trip, and its fare by regression; arguments as for `pred_city`."""
    return _pred(TAXI, messages, models, estimates)
