"""Loads applications from texts, as `agiledart run FILE` does."""

from pathlib import Path
from typing import Any

from agiledart import collect
from agiledart.testing import run_local
from agiledart_executor.user_code.user_builder import load_builder


def loaded(folder: Path, text: str, name: str = "query.sql") -> Any:
    """The builder of a file with this text."""
    (folder / name).write_text(text)
    return load_builder(name, folder).value


def rows_of(folder: Path, text: str, name: str = "query.sql", parallelism: int = 1, **inputs: Any) -> list[Any]:
    """The rows that a file with a single sink `result` gives for some inputs."""
    build = loaded(folder, text, name)
    rows: Any = run_local(build(**inputs, result=collect), parallelism=parallelism)
    return list(rows)


def fault(folder: Path, text: str, name: str = "query.sql") -> str:
    """The message that refuses a text."""
    from agiledart_executor.query_files.text_place import QueryFileError

    try:
        loaded(folder, text, name)
    except QueryFileError as error:
        return str(error)
    raise AssertionError(f"not refused: {text}")
