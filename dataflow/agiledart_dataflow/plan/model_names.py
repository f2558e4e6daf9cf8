"""Names of models by their hash: a row `sha256:DIGEST` of a control stream stands for a model whose file is on the node already."""

from typing import Final

REFERENCE: Final = b"sha256:"
"""Beginning of a row that names a model. No ONNX file begins so: `s` would open a group, which its format does not have."""

VERSION_DIGITS: Final = 12
"""Hexadecimal digits of a model's SHA-256 that name its version."""
