"""A pipeline project on disk: its specification, its folders, the lock of its updates, and what the last update did."""

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines.logs import LOGS_FILE

SPECIFICATIONS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
DEFAULT_DATABASE: Final = "default"
RUNNING: Final = "running"
"""Document of the state folder while an update runs; it stays when its process is killed."""


PLACE: Final = "place"
"""Document of the state folder with the folder of the project when its catalog was made."""

LAST_UPDATE: Final = "last-update"
"""Document of the state folder with the result of the last complete update."""

NAME: Final = re.compile(r"[a-z0-9_]+\Z")
"""Names of databases and tables; the catalog keeps them in small letters, and the folders of tables are called so."""

_FIELDS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
_CATALOG: Final = "spark_catalog"
_OWN_SETTINGS: Final = (
    "spark.sql.warehouse.dir",
    "spark.sql.catalogImplementation",
    "spark.plugins",
    "spark.sql.caseSensitive",
)
"""Settings on which the files of tables and the server depend; `session.py` sets them."""


@dataclass(frozen=True)
class PipelineProject:
    """A project.

    Attributes:
        root: folder of the specification.
        name, database, configuration: of the specification. `libraries`: its patterns of the transformations' files.
    """

    root: Path
    specification: Path
    name: str
    database: str
    configuration: Mapping[str, str]
    libraries: tuple[str, ...] = field(default=())

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

    @contextlib.contextmanager
    def file_errors(self) -> Iterator[None]:
        """Turn an error of the disk inside this block into `OperationFailed` with one sentence."""
        try:
            yield
        except ConnectionError:  # also of a terminal that is gone
            raise
        except OSError as error:
            raise OperationFailed(
                f"{error.filename or self.state}: {error.strerror or error}. Mend that, then run it again: finished work counts."
            ) from error

    def check_place(self) -> None:
        """Refuse a project that was moved or copied with its state: an update would write to the tables at the old place.

        Spark's catalog, its lists of files and its checkpoints name tables by absolute paths. Raises `OperationFailed`.
        """
        document = self.read_document(PLACE)
        if document is None:
            self.write_document(PLACE, {"root": str(self.root)})
        elif document["root"] != str(self.root):
            raise OperationFailed(
                f"{self.root} was moved or copied from {document['root']}, and Spark's catalog and checkpoints name that place. "
                f"Move it back, or delete {self.state}: the next update then computes all tables from what the logs still have."
            )

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
    folder = folder.resolve()  # one name of the place, whatever links lead to it: tables name their files by it
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
    unknown = [str(name) for name in document if name not in _FIELDS]
    if unknown:
        raise ConfigurationError(f"{file} has {', '.join(unknown)}; a specification has {', '.join(_FIELDS)}.")
    if document.get("catalog", _CATALOG) != _CATALOG:
        raise ConfigurationError(f"{file}: a project has a catalog of its own in {root / 'state'}. Leave out catalog:")
    configuration = document.get("configuration") or {}
    if not isinstance(configuration, dict) or not all(isinstance(value, str) for value in configuration.values()):
        raise ConfigurationError(f'{file}: configuration: maps names of settings to texts, such as "2".')
    own = [name for name in configuration if name in _OWN_SETTINGS]
    if own:
        raise ConfigurationError(
            f"{file}: configuration: {', '.join(own)} is set by agiledart pipeline itself. Leave it out."
        )
    database = str(document.get("database") or document.get("schema") or DEFAULT_DATABASE)
    if not NAME.match(database):
        raise ConfigurationError(
            f"{file}: database: {database} is no name of small letters, digits and _, such as taxi_2."
        )
    libraries = _libraries(file, document["libraries"])
    return PipelineProject(root, file, document["name"], database, configuration, libraries)


def _libraries(file: Path, entries: Any) -> tuple[str, ...]:
    """Return the patterns of the transformations' files. Raises `ConfigurationError`, also when no file fits one."""
    patterns = [_pattern(entry) for entry in entries] if isinstance(entries, list) else [None]
    if None in patterns:
        raise ConfigurationError(f"{file}: libraries: is a list of  - glob: {{include: transformations/**}}")
    texts = tuple(str(pattern) for pattern in patterns)
    for text in texts:
        folder = text.removesuffix("/**")
        if any(sign in folder for sign in "*?["):
            raise ConfigurationError(f"{file}: include: {text} is neither a file nor a folder with /** at its end.")
        place = file.parent / folder
        if not (place.is_file() if folder == text else any(part.is_file() for part in place.rglob("*"))):
            raise ConfigurationError(f"{file}: include: {text} fits no file.")
    return texts


def _pattern(entry: Any) -> str | None:
    glob = entry.get("glob") if isinstance(entry, dict) else None
    include = glob.get("include") if isinstance(glob, dict) else None
    return include if isinstance(include, str) else None
