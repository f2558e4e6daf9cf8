"""Modules that are imported when they are first used: NumPy, pyarrow and Polars cost 20 to 60 MB, and many nodes never need them.

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
    """Stands for a module; the first use of one of its names imports it.

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
    """The module of this name, imported when it is first used."""
    return LazyModule(name)


def import_at_once() -> bool:
    """`may_import` of a caller that would rather wait for NumPy and pyarrow than come again."""
    return True
