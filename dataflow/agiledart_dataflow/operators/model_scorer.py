"""`ModelScorer`: rows scored by a model that arrives as a row of a control stream, and is replaced by the next valid one.

A model is loaded and tried before it replaces the one in use, so no row meets a half-loaded or unsuitable model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from agiledart_dataflow.operators.keyed import BroadcastOperator, Context
from agiledart_dataflow.operators.model_access import ModelAccess, NoModels, model_reference
from agiledart_dataflow.operators.model_parts import IncomingModel
from agiledart_dataflow.operators.onnx_model import OnnxModel
from agiledart_dataflow.plan.model_names import VERSION_DIGITS

MAX_LOADED: Final = 2
"""Models in the memory of a process: the one in use, and the one before, which other instances may still use."""


@dataclass
class ModelInUse:
    """Shared value: the model by which rows are scored.

    Attributes:
        version: beginning of its SHA-256; empty before the first model.
        data: the bytes of its file.
        incoming: parts of the next model.
    """

    version: str = ""
    data: bytes = b""
    incoming: IncomingModel = field(default_factory=IncomingModel)


@dataclass
class Unscored:
    """State of a key, which keeps none."""

    marks: list[int] = field(default_factory=list)


class ModelScorer(BroadcastOperator[int, Any, Unscored, Any, bytes, ModelInUse]):
    """Scores of rows by the model in use.

    Args:
        inputs: places, in the rows, of the fields that are the model's input, in its order.
        make: row and results → new row.
        output_type: int or float; scores are converted to it.

    Attributes:
        models: of the process by hash, and its memory.

    A row raises `LookupError` before the first model; a control row raises `UnsuitableModelError` when it is none, and
    the one in use stays. The step's error policy decides about both.
    """

    def __init__(self, inputs: Sequence[int], make: Any, output_type: type) -> None:
        self._inputs, self._make, self._output_type = tuple(inputs), make, output_type
        self.models: ModelAccess = NoModels()
        self._loaded: dict[str, OnnxModel] = {}  # by version; instances of one process share them

    def initial(self, key: int) -> Unscored:
        return Unscored()

    def initial_shared(self) -> ModelInUse:
        return ModelInUse()

    def on_broadcast(self, record: bytes, shared: ModelInUse) -> None:
        digest = model_reference(record)
        data = shared.incoming.taken(record) if digest is None else self.models.read(digest)
        if data is None:
            return
        version = model_version(data)
        self._model(version, data)
        shared.version, shared.data = version, data

    def _model(self, version: str, data: bytes) -> OnnxModel:
        """Return the loaded model. Raises `UnsuitableModelError`."""
        model = self._loaded.get(version)
        if model is None:
            with self.models.within_memory():
                model = OnnxModel(data, len(self._inputs))
            while len(self._loaded) >= MAX_LOADED:
                del self._loaded[next(iter(self._loaded))]
            self._loaded[version] = model
        return model

    def on_record(self, key: int, record: Any, state: Unscored, context: Context[Any]) -> None:
        context.forget()
        context.emit(self.scored([record], context.shared)[0])

    def scored(self, rows: Sequence[Any], shared: ModelInUse) -> list[Any]:
        """Return the new rows, in order. A row without one of the inputs has no score."""
        if not shared.version:
            raise LookupError("no model has come yet")
        model = self._model(shared.version, shared.data)  # behind a restart it is loaded from the snapshot's bytes
        inputs = [self._inputs_of(row) for row in rows]
        scores = iter(model.scores([values for values in inputs if values is not None]))
        convert, make, version = self._output_type, self._make, shared.version
        return [
            make(row, None if values is None else convert(next(scores)), version)
            for row, values in zip(rows, inputs, strict=True)
        ]

    def _inputs_of(self, row: Any) -> list[float] | None:
        """Return the model's input; None when a value is missing."""
        fields = row if isinstance(row, tuple) else tuple(vars(row).values())
        values = [fields[place] for place in self._inputs]
        return None if None in values else [float(value) for value in values]


def model_version(data: bytes) -> str:
    """Return the version of a model."""
    return sha256(data).hexdigest()[:VERSION_DIGITS]
