"""`ModelAccess`: models by their hash, and memory to load one, which a process gives to a step that scores."""

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from agiledart_dataflow.plan.model_names import REFERENCE

DIGEST_BYTES: Final = 32


class UnsuitableModelError(ValueError):
    """A row of a control stream brings no model that the step can use; reports count each subclass for itself."""


class ModelFormatError(UnsuitableModelError):
    """The bytes are no ONNX model."""


class ModelShapeError(UnsuitableModelError):
    """The model takes other inputs."""


class ModelMemoryError(UnsuitableModelError):
    """The node lacks memory for the model."""


class ModelNameError(UnsuitableModelError):
    """The row begins like the name of a model and is none."""


class ModelMissingError(UnsuitableModelError):
    """The model that the row names is not on this node."""


class ModelPartError(UnsuitableModelError):
    """The row is a part of a model that is damaged, missing or too large."""


class ModelAccess(Protocol):
    """Models of one node, as its executor sees them."""

    def read(self, digest: bytes) -> bytes:
        """Return the file of a model. Raises `ModelMissingError`: it is not on this node, or damaged."""
        ...

    def within_memory(self) -> AbstractContextManager[None]:
        """Return a context in which memory that the node does not have is refused by an exception."""
        ...


class NoModels:
    """Host without models by hash, such as a local run."""

    def read(self, digest: bytes) -> bytes:
        raise ModelMissingError(
            f"the model sha256:{digest.hex()[:12]}… is named by its hash, and only agents have models by hash:"
            " here use whole_file('quality.onnx')"
        )

    def within_memory(self) -> AbstractContextManager[None]:
        return nullcontext()


def model_reference(row: bytes) -> bytes | None:
    """Return the hash that a row names; None for a row that is a model or a part of one. Raises `ModelNameError`."""
    if not row.startswith(REFERENCE):
        return None
    try:
        digest = bytes.fromhex(row[len(REFERENCE) :].decode("ascii").strip())
    except ValueError:
        digest = b""
    if len(digest) != DIGEST_BYTES:
        raise ModelNameError(f"{row[:80]!r} is no name of a model: sha256: and 64 hexadecimal digits are")
    return digest
