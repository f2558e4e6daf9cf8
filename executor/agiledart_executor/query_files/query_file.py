"""Entry to applications in SQL and YAML: a file becomes Python source that builds its topology."""

import re
from pathlib import Path

from agiledart_executor.query_files.application_code import ApplicationCode
from agiledart_executor.query_files.sql_application import SqlApplication
from agiledart_executor.query_files.sql_text import MAX_TEXT, SqlText
from agiledart_executor.query_files.text_place import TextPlace
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.limits import MAX_APPLICATION_NAME


def python_source(path: Path, display_name: str) -> str:
    """Return the Python source of an application.

    Args:
        path: of the file.
        display_name: its name in errors.

    Raises:
        QueryFileError: the file says what cannot be done; with line and column.
        ConfigurationError: it cannot be read, or a library is missing.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{display_name} could not be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{display_name} is not UTF-8: byte {error.start}") from None
    start = TextPlace(display_name, 1, 1)
    if len(text) > MAX_TEXT:
        start.refuse(f"the file has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    code = ApplicationCode(application_name(path.stem))
    if path.suffix == ".sql":
        SqlApplication(SqlText(text, start), code).translate()
    else:
        from agiledart_executor.query_files.yaml_application import YamlApplication

        YamlApplication(text, start, code).translate()
    return code.source_text(path.name)


def application_name(stem: str) -> str:
    """Return the name of an application, from the name of its file."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._")[:MAX_APPLICATION_NAME]
    return name or "application"
