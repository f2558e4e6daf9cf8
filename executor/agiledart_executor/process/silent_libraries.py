"""Variables that keep libraries from sending events to their makers; they count before the library is loaded."""

from typing import Final

SILENT: Final = {"ORT_DISABLE_TELEMETRY": "1"}
"""ONNX Runtime sends events over HTTPS without it."""
