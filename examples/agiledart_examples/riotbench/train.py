"""TRAIN of RIoTBench: a timer names ranges of a table; the rows of each train a regression and a decision tree."""

import json
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from agiledart import BroadcastOperator, Context, Sink, Source, Topology, csv, null, plugin
from agiledart_examples.riotbench.messages import SenmlParse, SensorMessage
from agiledart_examples.riotbench.model_training import CLASSES, decision_tree, least_squares, quartile_classes
from agiledart_examples.riotbench.workloads import CITY, TAXI, StreamSettings

MAX_ROWS = 200_000
"""Most rows of the table; all instances keep it."""


MIN_ROWS = 10
"""Fewest rows from which a model is trained."""


class Timer(NamedTuple):
    """Line of the timer: train from the rows whose time is in [rowstart, rowend), in milliseconds."""

    msgId: int  # noqa: N815  the column's name in the benchmark's files
    timestamp: int
    rowstart: int
    rowend: int


class RangeModel(NamedTuple):
    """Model of a range of rows.

    Attributes:
        timer: number of the timer's line.
        kind: `regression` or `tree`.
        first_ms, last_ms: times of the first and the last row.
        rows: number of rows.
        model: JSON; a regression has `coefficients` (the last is the constant), a tree the form of the decoded trees.
    """

    timer: int
    kind: str
    first_ms: int
    last_ms: int
    rows: int
    model: str


class ModelNotice(NamedTuple):
    """Notice that a model is ready."""

    timer: int
    kind: str


@dataclass
class Table:
    """Rows of the table in order of time.

    Attributes:
        times: ms of each row.
        rows: values of each row in the order of the workload's fields.
    """

    times: list[int] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)


@dataclass
class NoTraining:
    """State of a timer's line, which keeps none."""


class Trainer(BroadcastOperator[int, Timer, NoTraining, RangeModel, SensorMessage, Table]):
    """Two models for each line of the timer; none where its range has fewer than `MIN_ROWS` rows."""

    def __init__(self, workload: StreamSettings) -> None:
        self._workload = workload
        self._inputs = [workload.fields.index(name) for name in workload.inputs]
        self._regressors = [workload.fields.index(name) for name in workload.regressors]
        self._target = workload.fields.index(workload.target)

    def initial(self, key: int) -> NoTraining:
        return NoTraining()

    def initial_shared(self) -> Table:
        return Table()

    def on_broadcast(self, record: SensorMessage, shared: Table) -> None:
        """Insert a row of the table; rows with a missing value train nothing and are left out."""
        values = [value for value in record.values if value is not None]
        if len(values) < len(record.values):
            return
        if len(shared.times) == MAX_ROWS:
            raise ValueError(f"the table has more than {MAX_ROWS} rows")
        place = bisect_left(shared.times, record.at_ms + 1)
        shared.times.insert(place, record.at_ms)
        shared.rows.insert(place, values)

    def on_record(self, key: int, record: Timer, state: NoTraining, context: Context[RangeModel]) -> None:
        times = context.shared.times
        first, end = bisect_left(times, record.rowstart), bisect_left(times, record.rowend)
        if end - first >= MIN_ROWS:
            rows = context.shared.rows[first:end]
            for kind, model in (("regression", self._regression(rows)), ("tree", self._tree(rows))):
                span = times[first], times[end - 1]
                context.emit(RangeModel(record.msgId, kind, *span, len(rows), json.dumps(model)))
        context.forget()

    def _regression(self, rows: list[list[float]]) -> dict[str, object]:
        inputs = [[row[place] for place in self._regressors] for row in rows]
        coefficients = least_squares(inputs, [row[self._target] for row in rows])
        return {"attributes": self._workload.regressors, "coefficients": coefficients}

    def _tree(self, rows: list[list[float]]) -> dict[str, object]:
        inputs = [[row[place] for place in self._inputs] for row in rows]
        classes = quartile_classes([row[self._target] for row in rows])
        return {"attributes": self._workload.inputs, "classes": CLASSES, "tree": decision_tree(inputs, classes)}


def timer_number(row: Timer) -> int:
    """Return the key of a line of the timer."""
    return row.msgId


def publication(row: RangeModel) -> ModelNotice:
    """Return the notice of a model."""
    return ModelNotice(row.timer, row.kind)


def _train(
    workload: StreamSettings,
    timer: Source[Timer],
    table: Source[str],
    models: Sink[RangeModel],
    published: Sink[ModelNotice],
) -> Topology:
    topology = Topology(f"train-{workload.name}")
    parse = SenmlParse(workload)
    rows = topology.reference("table", table, rows=str).map(
        parse, "table-parse", returns=SensorMessage, on_error="skip"
    )
    trained = (
        topology.source("timer", timer, rows=Timer)
        .key_by(timer_number)
        .connect(rows)
        .stateful("train", Trainer(workload))
    )
    trained.sink("models", models)
    trained.map(publication).sink("published", published)
    return topology


def train_city(
    timer: Source[Timer] = plugin("example", stream="city-timer"),  # noqa: B008  a connector is a value
    table: Source[str] = plugin("example", stream="city", count=1000),  # noqa: B008  as above
    models: Sink[RangeModel] = csv("train-city.csv"),  # noqa: B008  as above
    published: Sink[ModelNotice] = null(),  # noqa: B008  as above
) -> Topology:
    """Build TRAIN over sensors of cities.

    Args:
        timer: CSV with the columns msgId, timestamp, rowstart, rowend.
        table: lines `milliseconds,SenML`, bounded.
        models: sink of one row for each trained model.
        published: sink of notices of models.
    """
    return _train(CITY, timer, table, models, published)


def train_taxi(
    timer: Source[Timer] = plugin("example", stream="taxi-timer"),  # noqa: B008  a connector is a value
    table: Source[str] = plugin("example", stream="taxi", count=1000),  # noqa: B008  as above
    models: Sink[RangeModel] = csv("train-taxi.csv"),  # noqa: B008  as above
    published: Sink[ModelNotice] = null(),  # noqa: B008  as above
) -> Topology:
    """Build TRAIN over taxi trips; arguments as for `train_city`."""
    return _train(TAXI, timer, table, models, published)
