"""Would a source or sink open here? Without reading a row, and without touching what a sink would write."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from agiledart_connectors.catalogue import SINKS, SOURCES
from agiledart_connectors.codecs.dict_lines import reject_dict_rows
from agiledart_connectors.opening import PACING, named_function, open_source, sink_options
from agiledart_connectors.options import check_options
from agiledart_connectors.plugins import sink_guarantee, source_guarantee
from agiledart_connectors.rejections import check_policy
from agiledart_connectors.sink_guarantees import sink_guarantee_text, source_guarantee_text
from agiledart_dataflow.data.schema import is_dict
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_sink_log.layout import FOLDER, is_locked
from agiledart_sink_log.protocol import user_sink_name_fault

_PACKAGE: Final = "agiledart_connectors"

FILE_EXISTS = "exists; will be overwritten"
"""Result for the file of a sink that begins anew."""


class ProbeResult(NamedTuple):
    """Result of a check, and the connector's guarantee."""

    text: str
    guarantee: str


def probe_source(connector: Connector, row_type: Any) -> ProbeResult:
    """Raises what opening it would raise, or what `probes` of its kind finds wrong."""
    guarantee = source_guarantee(connector.kind)
    kind = SOURCES.get(connector.kind)
    if kind is not None and kind.probes:
        check_options(connector, (*kind.options, *PACING))
        text = named_function(kind.probes)(connector, row_type)
    else:
        open_source(connector, row_type).close()
        text = "can be read"
    return ProbeResult(text, source_guarantee_text(connector, guarantee))


def logs_here(directory: Path) -> dict[str, bool]:
    """Return the logs of a state directory: name → whether a process writes it now. This process cannot see them later."""
    with contextlib.suppress(OSError):
        return {place.name: is_locked(place) for place in (directory / FOLDER).iterdir()}
    return {}


def probe_sink(connector: Connector, row_type: Any, logs: Mapping[str, bool]) -> ProbeResult:
    """The same for a sink; one of a kind that has nothing to try is believed. `logs`: as of `logs_here`."""
    guarantee = sink_guarantee(connector.kind)
    kind = SINKS.get(connector.kind)
    text = "not tried"
    if kind is not None:
        check_options(connector, sink_options(kind))
        check_policy(connector)
        if kind.probes:
            text = named_function(kind.probes)(connector, row_type)
        elif connector.kind in ("csv", "jsonl", "parquet"):
            if is_dict(row_type) and connector.kind != "jsonl":
                reject_dict_rows(connector.kind)
            text = _writable(connector.path)
        elif connector.kind == "log":
            text = _log_free(connector.path, logs)
        elif connector.kind in ("null", "collect", "stdout"):
            text = "can be written"
    return ProbeResult(text, sink_guarantee_text(connector, guarantee))


def _writable(path: str) -> str:
    """A file that could be written here. Raises `OperationFailed`."""
    if path in ("", "-", "/dev/stdout"):
        return "can be written"
    place = Path(path)
    folder = place if place.is_dir() else place.parent
    if not folder.is_dir():
        raise OperationFailed(f"there is no folder {folder} here")
    if not os.access(folder, os.W_OK | os.X_OK) or (place.is_file() and not os.access(place, os.W_OK)):
        raise OperationFailed(f"{place} may not be written here")
    return FILE_EXISTS if place.is_file() else "can be written"


def _log_free(name: str, logs: Mapping[str, bool]) -> str:
    """Return a text about a log that no process writes now. Raises `ConfigurationError`, `OperationFailed`."""
    if fault := user_sink_name_fault(name):
        raise ConfigurationError(f"log:{name}: {fault}")
    if logs.get(name):
        raise OperationFailed(
            f"the log {name} is being written on this node; use another name, or stop the application that writes it"
        )
    return "goes on with the rows that are there" if name in logs else "can be written"
