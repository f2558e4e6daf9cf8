"""The version in the code is the version of the package."""

import tomllib
from pathlib import Path

from agiledart_kernel.version import VERSION


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION
