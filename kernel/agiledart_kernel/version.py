"""Version of AgileDart that runs here. The search for the installed distribution would take an agent 1 MB of memory."""

from typing import Final

VERSION: Final = "0.1.0"
"""The same as in `pyproject.toml`."""
