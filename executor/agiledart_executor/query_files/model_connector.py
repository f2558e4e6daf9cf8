"""Connector of a model that a query file names: a path is that of a file, `quality.onnx` or `quality.onnx@pi2`."""

from dataclasses import replace

from agiledart_dataflow.plan.connectors import Connector, parse_connector
from agiledart_executor.query_files.text_place import TextPlace
from agiledart_kernel.errors import ConfigurationError


def model_connector(text: str, place: TextPlace) -> Connector:
    """Return the source of a model. Refuses a text that is none."""
    if not text.strip():
        place.refuse("a model is the path of an ONNX file, or the address of a source of models")
    try:
        if ":" in text:
            return parse_connector(text)
        file = parse_connector(f"file:{text}")
    except ConfigurationError as error:
        place.refuse(str(error))
    return replace(file, options=tuple(sorted({**dict(file.options), "parts": "1"}.items())))
