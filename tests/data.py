"""Where shared test data lie. Never part of the project; a test that needs a missing file is skipped, visibly."""

import os
from pathlib import Path

import pytest

DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data"

TAXI_SAMPLE = "debs2015/trips_2013-01-01_first10004.csv.gz"
"""The head of the official DEBS 2015 stream: 10,004 trips."""


def data_root() -> Path:
    """The folder named by AGILEDART_DATA, else the one beside the checkout."""
    return Path(os.environ.get("AGILEDART_DATA") or DEFAULT)


def data_path(relative: str) -> Path:
    """A data file; skips the calling test with the reason when the file is not there."""
    path = data_root() / relative
    if not path.exists():
        pytest.skip(f"{path} does not exist; set AGILEDART_DATA to the folder that holds {relative}")
    return path
