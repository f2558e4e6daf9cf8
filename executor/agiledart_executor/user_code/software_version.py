"""Which version of AgileDart runs here."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def software_version() -> str:
    """The installed distribution's version, `unknown` in a checkout that was not installed."""
    try:
        return version("agiledart")
    except PackageNotFoundError:
        return "unknown"
