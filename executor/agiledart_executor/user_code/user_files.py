"""No file of a topology is written over: neither one that it reads, nor the result of another sink."""

import os
import stat
from collections.abc import Callable, Hashable

from agiledart_dataflow.graph.topology import Topology
from agiledart_dataflow.plan.step import Step
from agiledart_executor.user_code.user_connectors import FILE_KINDS
from agiledart_kernel.errors import ConfigurationError

STANDARD_STREAMS = ("", "-", "/dev/stdin", "/dev/stdout")
"""Paths that name what the process already has open; a sink does not begin those anew."""

Identity = Callable[[Step, str], Hashable | None]
"""(step, path) → equal for the same file; None where no file can be lost."""


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
            what = f"overwrite what {sources[file].name} reads"
        elif file in sinks:
            what = f"write over what {sinks[file].name} writes"
        else:
            sinks[file] = step
            continue
        raise ConfigurationError(f"{step.name} would {what} ({connector.url()}). Give it another file.")


def file_here(step: Step, path: str) -> Hashable | None:
    """A file of this machine, whatever links lead to it; here everything runs, so nodes do not matter."""
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    except ValueError:  # a null byte: opening it tells
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def file_there(step: Step, path: str) -> Hashable | None:
    """A file of some node, by its text: what it leads to is known there only. Devices, such as /dev/null, lose nothing."""
    normal = os.path.normpath(path)
    return None if normal.startswith("/dev/") else (normal, step.at)
