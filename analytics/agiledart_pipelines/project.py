"""A pipeline project on disk: its specification, its folders, the lock of its updates, and what the last update did."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines.logs import LOGS_FILE

SPECIFICATIONS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
DEFAULT_DATABASE: Final = "default"
RUNNING: Final = "running"
"""Document of the state folder while an update runs; it stays when its process is killed."""


@dataclass(frozen=True)
class PipelineProject:
    """A project.

    Attributes:
        root: folder of the specification.
        name, database, configuration: of the specification.
    """

    root: Path
    specification: Path
    name: str
    database: str
    configuration: Mapping[str, str]

    @property
    def state(self) -> Path:
        """Return the folder of catalog, tables and checkpoints."""
        return self.root / "state"

    @property
    def warehouse(self) -> Path:
        """Return the folder of the tables' files."""
        return self.state / "tables"

    def table_folder(self, table: str) -> Path:
        """Return the folder of a table's files."""
        return (
            self.warehouse / table
            if self.database == DEFAULT_DATABASE
            else self.warehouse / f"{self.database}.db" / table
        )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the project's lock: one update at a time. Raises `OperationFailed`, which names the process that holds it."""
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise OperationFailed(
                    f"Another process ({file.read().strip() or 'unknown'}) updates {self.name}. Two updates on the same "
                    f"checkpoints would repeat or lose rows: wait for it, or stop it."
                ) from None
            file.truncate(0)
            file.write(f"pid {os.getpid()}")
            file.flush()
            yield

    def read_document(self, name: str) -> Any:
        """Return a JSON document of the state folder; None without it."""
        try:
            return json.loads((self.state / f"{name}.json").read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise OperationFailed(f"{self.state / name}.json is damaged ({error}). Restore it, or delete it.") from None

    def write_document(self, name: str, document: Any) -> None:
        """Write a JSON document of the state folder atomically and durably; None deletes it."""
        path = self.state / f"{name}.json"
        if document is None:
            path.unlink(missing_ok=True)
            return
        temporary = path.with_suffix(".writing")
        with temporary.open("w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def open_project(folder: Path) -> PipelineProject:
    """Return the project of a folder or of one above it. Raises `ConfigurationError`, also for a faulty specification."""
    folder = folder.absolute()
    for root in (folder, *folder.parents):
        for name in SPECIFICATIONS:
            if (root / name).is_file():
                return _read(root, root / name)
    raise ConfigurationError(
        f"There is no {SPECIFICATIONS[0]} in {folder}. Make a project:  agiledart pipeline init NAME"
    )


def _read(root: Path, file: Path) -> PipelineProject:
    try:
        import yaml
    except ImportError:
        raise OperationFailed(
            "Pipelines need pyyaml and Spark Connect. Install:  pip install 'agiledart[pipeline]'"
        ) from None
    try:
        document = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict) or not isinstance(document.get("name"), str) or not document.get("libraries"):
        raise ConfigurationError(f"{file} needs name: and libraries: ({LOGS_FILE} names the logs).")
    configuration = document.get("configuration") or {}
    if not isinstance(configuration, dict) or not all(isinstance(value, str) for value in configuration.values()):
        raise ConfigurationError(f'{file}: configuration: maps names of settings to texts, such as "2".')
    database = str(document.get("database") or document.get("schema") or DEFAULT_DATABASE)
    return PipelineProject(root, file, document["name"], database, configuration)
