"""The engines that run the applications of figure 9: a mesh of agents, and Apache Storm."""

from pathlib import Path
from typing import Final, Protocol

from agiledart_experiments.process_figures import with_descendants
from agiledart_experiments.queries.compared_application import ComparedApplication
from agiledart_experiments.storm.storm_cluster import StormCluster
from agiledart_experiments.throwaway_mesh import ThrowawayMesh

STORM_WORKERS: Final = 3
"""Processes of a topology of Storm, as many as the mesh has agents."""


class QueryEngine(Protocol):
    """An engine.

    Attributes:
        name: as results show it.
        workers_s: time from the connection of the source until all parts of an application can be expected to run.
    """

    name: str
    workers_s: float

    def start(self, application: ComparedApplication, name: str, port: int, results: Path, metadata: Path) -> None:
        """Start an application that reads from this port and appends to this file. Raises `OperationFailed`."""
        ...

    def stop(self, name: str) -> None:
        """End it at once."""
        ...

    def processes(self) -> list[int]:
        """Return all processes of the engine."""
        ...


class MeshEngine:
    """Three agents; the source on the first, the sink on the last."""

    name = "agiledart"
    workers_s = 1.0

    def __init__(self, mesh: ThrowawayMesh) -> None:
        self._mesh = mesh

    def start(self, application: ComparedApplication, name: str, port: int, results: Path, metadata: Path) -> None:
        words = ["--set", f"{application.source}=tcp:127.0.0.1:{port}?format={application.form}@a1"]
        words += ["--set", f"{application.sink}=csv:{results}@a3"]
        words += ["--set", f"metadata={metadata}"] if application.has_metadata else []
        self._mesh.ask("submit", application.target, "--name", name, *words, "--delivery", "at-most-once")

    def stop(self, name: str) -> None:
        self._mesh.ask("stop", name, "--now")

    def processes(self) -> list[int]:
        return with_descendants(self._mesh.processes)


class StormEngine:
    """A node of Storm without acknowledgements, at most once as well."""

    name = "storm"
    workers_s = 8.0

    def __init__(self, cluster: StormCluster) -> None:
        self._cluster = cluster

    def start(self, application: ComparedApplication, name: str, port: int, results: Path, metadata: Path) -> None:
        self._cluster.submit(application.name, name, port, results, metadata, STORM_WORKERS)

    def stop(self, name: str) -> None:
        self._cluster.kill(name)

    def processes(self) -> list[int]:
        return with_descendants(self._cluster.roots)
