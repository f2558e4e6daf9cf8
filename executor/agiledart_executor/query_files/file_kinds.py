"""Files that hold an application in SQL or YAML, by their names; imports nothing, so that every command may ask."""

from typing import Final

SUFFIXES: Final = (".sql", ".yaml", ".yml")

BUILDER: Final = "build"
"""Name of the function that builds the topology."""


def is_query_file(target: str) -> bool:
    """Return whether a target of the command line names a file of SQL or YAML."""
    return target.endswith(SUFFIXES)
