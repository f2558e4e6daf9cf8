"""Sources and sinks among a builder's parameters: from the text of `--set` to what the builder expects."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin

from agiledart_dataflow.connectors import Connector, Sink, Source, parse_connector
from agiledart_kernel.errors import ConfigurationError

FILE_KINDS = frozenset({"csv", "jsonl"})
"""Kinds whose path is a file on the node where the connector runs."""


def is_connector(annotation: Any, default: Any) -> bool:
    """Whether a parameter takes a source or a sink: by its annotation, or by its default."""
    return (get_origin(annotation) or annotation) in (Source, Sink, Connector) or isinstance(default, Connector)
