"""Check that no sink of a topology overwrites a file that the topology reads or that another sink writes."""

import os
import stat
from collections.abc import Callable, Hashable

from agiledart_dataflow.graph.topology import Topology
from agiledart_dataflow.plan.step import Step
from agiledart_executor.user_code.user_connectors import FILE_KINDS
from agiledart_kernel.errors import ConfigurationError

STANDARD_STREAMS = ("", "-", "/dev/stdin", "/dev/stdout")
"""Paths of streams that the process already has open; a sink does not truncate them."""

Identity = Callable[[Step, str], Hashable | None]
"""Function (step, path) → a value that is equal for the same file; None where no file can be lost."""


def refuse_overwriting(topology: Topology, identity: Identity) -> None:
    """Raise `ConfigurationError` when a sink's file is a source's, or another sink's. Opens nothing."""
    sources: dict[Hashable, Step] = {}
    sinks: dict[Hashable, Step] = {}
    for step in sorted(topology.steps, key=lambda step: step.kind != "source"):
        connector = step.connector
        if connector is None or connector.kind not in FILE_KINDS or connector.path in STANDARD_STREAMS:
            continue
        file = identity(step, connector.path)
        if file is None:
            continue
        if step.kind == "source":
            sources.setdefault(file, step)
            continue
        if file in sources:
            fault = f"overwrite what {sources[file].name} reads"
        elif file in sinks:
            fault = f"write over what {sinks[file].name} writes"
        else:
            sinks[file] = step
            continue
        raise ConfigurationError(f"{step.name} would {fault} ({connector.url()}). Give it another file.")


def file_here(step: Step, path: str) -> Hashable | None:
    """Identify a file of this machine through all links, for a run in which every step runs here."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    except ValueError:  # a null byte; opening the file raises the error
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def file_there(step: Step, path: str) -> Hashable | None:
    """Identify a file of any node by its path, since links are known only there; None for devices such as /dev/null."""
    normal = os.path.normpath(path)
    return None if normal.startswith("/dev/") else (normal, step.at)
