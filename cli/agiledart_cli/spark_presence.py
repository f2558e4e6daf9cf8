"""Can Spark run here? For the demos, before they start anything."""

import shutil
import sys
from pathlib import Path

from agiledart_kernel.errors import AgileDartError


def unavailable_reason() -> str:
    """Return why Spark cannot run here; "" when it can."""
    import importlib.util

    from agiledart.spark import find_java

    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed:  {_pip()} install 'agiledart[spark]'"
    try:
        find_java()
    except AgileDartError as error:
        return str(error)
    return ""


def _pip() -> str:
    """Return the command for the pip of this Python; the pip of another environment would not help."""
    pip = shutil.which("pip")
    beside = pip is not None and Path(pip).parent == Path(sys.executable).parent
    return "pip" if beside else f"{sys.executable} -m pip"
