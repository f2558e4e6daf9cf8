"""`OnnxModel`: a model of ONNX, loaded by ONNX Runtime, that scores rows of numbers.

ONNX is data: unlike a pickle it cannot run code when it is opened. A model may name further files with its weights; the bytes alone
are loaded, so such a model is refused.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from agiledart_dataflow.operators.model_access import ModelFormatError, ModelMemoryError, ModelShapeError

BLOCK_ROWS: Final = 16
"""Rows of one call, the last filled up with zeros. A library may add in another order for another number of rows; with a fixed
number the score of a row does not depend on the rows that came with it."""

NUMBERS: Final = frozenset(
    f"tensor({kind})"
    for kind in (
        "float",
        "double",
        "float16",
        "bool",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)
"""Types of an output that is a number for each row."""

MAX_ERROR_TEXT: Final = 200

NO_MEMORY: Final = ("bad_alloc", "Failed to allocate memory", "bad allocation", "Cannot allocate memory")
"""Parts of the library's messages when it gets no memory."""


_NO_REASON: Final = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (/onnxruntime_src/\S+:\d+ .*?\) )?")


class OnnxModel:
    """A loaded model.

    Args:
        data: bytes of its file.
        inputs: number of values of a row.

    Raises:
        UnsuitableModelError: the bytes are no model, one of another shape, or one that needs more memory.
        ModuleNotFoundError: ONNX Runtime is not installed.
    """

    def __init__(self, data: bytes, inputs: int) -> None:
        try:
            import numpy as np
            import onnxruntime
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "models need ONNX Runtime on the nodes that score:  pip install 'agiledart[onnx]'"
            ) from None
        onnxruntime.disable_telemetry_events()  # beside ORT_DISABLE_TELEMETRY, which executors set
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # instances are the parallelism
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  the library has no common error
            _refuse_size(error, len(data))
            raise ModelFormatError(f"this is no ONNX model: {_first_line(error)}") from None
        shapes = [(entry.name, entry.type, entry.shape) for entry in self._session.get_inputs()]
        if len(shapes) != 1 or shapes[0][1] not in ("tensor(float)", "tensor(double)") or len(shapes[0][2]) != 2:
            raise ModelShapeError(
                f"the model's input is not one matrix of floats, a row for each record: {shapes}."
                " Export it with one input of all columns"
            )
        self._input, number, (rows, width) = shapes[0]
        if isinstance(width, int) and width != inputs:
            raise ModelShapeError(f"the model takes {width} values, and inputs= names {inputs}")
        self._output, kind = next((entry.name, entry.type) for entry in self._session.get_outputs())
        if kind not in NUMBERS:
            raise ModelShapeError(
                f"the model's first output is {kind}, not a number for each row: export the model with such an output first"
            )
        self._block: Any = np.zeros(
            (rows if isinstance(rows, int) and rows > 0 else BLOCK_ROWS, inputs),
            dtype=np.float32 if number == "tensor(float)" else np.float64,
        )
        try:
            self.scores([[0.0] * inputs])
        except Exception as error:  # noqa: BLE001  the library has no common error
            _refuse_size(error, len(data))
            raise ModelShapeError(f"the model does not score a row of {inputs} zeros: {_first_line(error)}") from None

    def scores(self, rows: Sequence[Sequence[float]]) -> list[float]:
        """Return the first value of the first output for each row."""
        block, size = self._block, len(self._block)
        results: list[float] = []
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            block[: len(part)] = part
            block[len(part) :] = 0.0
            given = self._session.run([self._output], {self._input: block})[0]
            results += given.reshape(size, -1)[: len(part), 0].tolist()
        return results


def _refuse_size(error: Exception, size: int) -> None:
    """Raise `ModelMemoryError` when the library got no memory."""
    text = str(error)
    if isinstance(error, MemoryError) or any(mark in text for mark in NO_MEMORY):
        raise ModelMemoryError(f"the model ({size:,} bytes) needs more memory than this node has") from None


def _first_line(error: Exception) -> str:
    """Return the library's reason, without its error number and the place in its source."""
    return _NO_REASON.sub("", str(error).splitlines()[0])[:MAX_ERROR_TEXT]
