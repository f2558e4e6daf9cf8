"""Reader of measured networks in the folder that AGILEDART_DATA names. The data is not part of the project."""

import csv
import gzip
import os
from pathlib import Path


def table(relative: str) -> list[dict[str, str]] | None:
    """Read the rows of a CSV file, also a compressed one; return None when the file does not exist."""
    root = os.environ.get("AGILEDART_DATA")
    path = Path(root, relative) if root else None
    if path is None or not path.is_file():
        return None
    if path.suffix == ".gz":
        with gzip.open(path, "rt", newline="") as file:
            return list(csv.DictReader(file))
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
