"""Modules that are imported at their first use: NumPy, pyarrow and Polars cost 20 to 60 MB, and many nodes never need them.

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy_import("numpy")
"""

from importlib import import_module
from typing import Any

from agiledart_kernel.errors import ConfigurationError

_PACKAGES = {"numpy": "NumPy", "pyarrow": "pyarrow", "polars": "Polars"}


class LazyModule:
    """Placeholder of a module; the first use of one of its names imports it.

    Raises:
        ConfigurationError: the package is not installed; says what to install.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            value = getattr(import_module(self._name), name)
        except ImportError:
            package = self._name.partition(".")[0]
            extra = "polars" if package == "polars" else "'agiledart[columns]'"
            raise ConfigurationError(
                f"columns need {_PACKAGES.get(package, package)}, which is not installed here: pip install {extra}"
            ) from None
        setattr(self, name, value)  # from now on a plain attribute
        return value


def lazy_import(name: str) -> Any:
    """Return the module of this name, imported at its first use."""
    return LazyModule(name)


def import_at_once() -> bool:
    """Return True; a `may_import` for a caller that waits for NumPy and pyarrow."""
    return True
