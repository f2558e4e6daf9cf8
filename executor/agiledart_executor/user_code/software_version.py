"""Version of AgileDart that runs here."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def software_version() -> str:
    """Return the installed distribution's version; `unknown` in a checkout that is not installed."""
    try:
        return version("agiledart")
    except PackageNotFoundError:
        return "unknown"
