"""Strategies of users: `FILE.py:CLASS`, or an entry point of a package."""

import importlib.util
import sys
from pathlib import Path

from agiledart_kernel.errors import ConfigurationError
from agiledart_placement.problem.strategy import PlacementStrategy
from agiledart_placement.registry import ENTRIES, checked_strategy, offline_strategy


def is_users(name: str) -> bool:
    """Return whether a strategy is not shipped, so that it may hang, crash or answer nonsense."""
    return name not in ENTRIES


def load_strategy(name: str) -> PlacementStrategy:
    """Return a new strategy: a shipped one, one of a package, or a class in a file.

    Raises:
        ConfigurationError: there is none, or it cannot be loaded.
    """
    file, colon, made = name.rpartition(":")
    if not colon or not file.endswith(".py"):
        return offline_strategy(name)
    path = Path(file)
    if not path.is_file():
        raise ConfigurationError(f"strategy {name}: there is no file {file}.")
    spec = importlib.util.spec_from_file_location(f"_agiledart_strategy_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
        member = vars(module)[made]
        strategy: object = member()
    except KeyError as error:
        raise ConfigurationError(f"strategy {name}: {file} has no {error.args[0]}.") from None
    except Exception as error:
        raise ConfigurationError(f"strategy {name}: it could not be loaded: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return checked_strategy(strategy, name)
