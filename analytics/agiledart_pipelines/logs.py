"""Logs of a project: `read_logs` for transformations, and the options of the source from `agiledart-pipeline.toml`."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agiledart_kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGS_FILE: Final = "agiledart-pipeline.toml"
_FILES: Final = ("tokenFile", "identityFile")


def read_logs(spark: "SparkSession", **options: str) -> "DataFrame":
    """Return a stream of the project's logs, with the columns that say where a row comes from.

    Args:
        options: of `format("agiledart")`; they take precedence over those of `agiledart-pipeline.toml`.
    """
    return spark.readStream.format("agiledart").options(**{**log_options(Path.cwd()), **options}).load()


def log_options(project: Path) -> dict[str, str]:
    """Return the options of the source that a project's file names. Raises `ConfigurationError`."""
    logs = _section(project, "logs")
    options = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in logs.items()}
    for name in _FILES:
        if name in options:
            options[name] = str((project / Path(options[name]).expanduser()).absolute())
    return {"metadata": "true", **options}


def time_field_of(project: Path) -> str:
    """Return the field of the logs' rows whose day a back-fill replaces. Raises `ConfigurationError`."""
    field = _section(project, "backfill").get("time_field")
    if not field:
        raise ConfigurationError(
            f'{project / LOGS_FILE} names no time_field in [backfill], such as time_field = "dropoff_at".'
        )
    return str(field)


def _section(project: Path, name: str) -> dict[str, Any]:
    file = project / LOGS_FILE
    try:
        document = tomllib.loads(file.read_text())
    except FileNotFoundError:
        raise ConfigurationError(f"There is no {file}. Make a project:  agiledart pipeline init NAME") from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}") from None
    section: Any = document.get(name)
    if not isinstance(section, dict) or not all(isinstance(value, str | int | bool) for value in section.values()):
        raise ConfigurationError(f"{file} needs a table [{name}] with simple values; a new project has one.")
    return section
