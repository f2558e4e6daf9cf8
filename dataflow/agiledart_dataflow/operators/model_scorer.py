"""`ModelScorer`: rows scored by a model that arrives as a row of a control stream, and is replaced by the next valid one.

A model is the bytes of an ONNX file. ONNX is data: unlike a pickle it cannot run code when it is opened. The model is loaded and
tried on a row of zeros before it replaces the one in use, so no row meets a half-loaded or unsuitable model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from agiledart_dataflow.operators.keyed import BroadcastOperator, Context

VERSION_DIGITS: Final = 12
"""Hexadecimal digits of a model's SHA-256 that name its version."""


@dataclass
class ModelInUse:
    """Shared value: the model by which rows are scored.

    Attributes:
        version: beginning of its SHA-256; empty before the first model.
        data: the bytes of its file.
    """

    version: str = ""
    data: bytes = b""


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

    A row raises `LookupError` before the first model; a control row raises `ValueError` when it is no suitable model, and
    the one in use stays. The step's error policy decides about both.
    """

    def __init__(self, inputs: Sequence[int], make: Any, output_type: type) -> None:
        self._inputs, self._make, self._output_type = tuple(inputs), make, output_type
        self._session: Any = None
        self._loaded = ""

    def initial(self, key: int) -> Unscored:
        return Unscored()

    def initial_shared(self) -> ModelInUse:
        return ModelInUse()

    def on_broadcast(self, record: bytes, shared: ModelInUse) -> None:
        session = load_model(record, len(self._inputs))
        shared.version, shared.data = model_version(record), record
        self._session, self._loaded = session, shared.version

    def on_record(self, key: int, record: Any, state: Unscored, context: Context[Any]) -> None:
        model: ModelInUse = context.shared
        context.forget()
        if not model.version:
            raise LookupError("no model has come yet")
        if self._loaded != model.version:  # behind a restart: the bytes are in the snapshot
            self._session, self._loaded = load_model(model.data, len(self._inputs)), model.version
        fields = record if isinstance(record, tuple) else tuple(vars(record).values())
        values = [fields[place] for place in self._inputs]
        if any(value is None for value in values):
            context.emit(self._make(record, None, model.version))
            return
        score = score_of(self._session, [float(value) for value in values])
        context.emit(self._make(record, self._output_type(score), model.version))


def model_version(data: bytes) -> str:
    """Return the version of a model."""
    return sha256(data).hexdigest()[:VERSION_DIGITS]


def load_model(data: bytes, inputs: int) -> Any:
    """Return a session of ONNX Runtime, after one trial.

    Raises:
        ValueError: the bytes are no model, or one of another shape.
        ModuleNotFoundError: ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "models need ONNX Runtime on the nodes that score:  pip install 'agiledart[onnx]'"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # instances are the parallelism
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  the library has no common error
        raise ValueError(f"this is no ONNX model: {str(error).splitlines()[0][:200]}") from None
    shapes = [(entry.name, entry.type, entry.shape) for entry in session.get_inputs()]
    if len(shapes) != 1 or shapes[0][1] not in ("tensor(float)", "tensor(double)") or len(shapes[0][2]) != 2:
        raise ValueError(f"the model's input is not one matrix of floats, a row for each record: {shapes}")
    width = shapes[0][2][1]
    if isinstance(width, int) and width != inputs:
        raise ValueError(f"the model takes {width} values, and inputs= names {inputs}")
    try:
        score_of(session, [0.0] * inputs)
    except Exception as error:  # noqa: BLE001  the library has no common error
        raise ValueError(
            f"the model does not score a row of {inputs} zeros: {str(error).splitlines()[0][:200]}"
        ) from None
    return session


def score_of(session: Any, values: Sequence[float]) -> float:
    """Return the first value of the first output for one row."""
    import numpy as np

    entry = session.get_inputs()[0]
    matrix = np.asarray([values], dtype=np.float32 if entry.type == "tensor(float)" else np.float64)
    result = session.run(None, {entry.name: matrix})[0]
    return float(np.asarray(result).reshape(-1)[0])
