"""Loader of `FILE:NAME` of the command line; it checks the target before its parameters."""

from types import FunctionType
from typing import TYPE_CHECKING, get_type_hints

from agiledart_kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from agiledart_executor.user_code.user_builder import UserBuilder


def load_target(target: str) -> "UserBuilder":
    """Return the builder, as `load_builder`. Raises `ConfigurationError` also for a function annotated to return another type."""
    from agiledart_dataflow.graph.topology import Topology
    from agiledart_executor.user_code.user_builder import load_builder

    builder = load_builder(target)
    if isinstance(builder.value, Topology) or _may_return(builder.value, Topology):
        return builder
    place, _, name = target.rpartition(":")
    module_globals = builder.value.__globals__ if isinstance(builder.value, FunctionType) else {}
    others = [
        other
        for other, value in module_globals.items()
        if isinstance(value, Topology)
        or (isinstance(value, FunctionType) and value.__globals__ is module_globals and _returns(value) is Topology)
    ]
    takes = ", ".join(builder.parameters)
    raise ConfigurationError(
        f"{name} builds no topology: it {f'takes {takes} and ' if takes else ''}returns {_type_text(builder.value)}."
        f" Builders in {place}: {', '.join(others) or 'none'}"
    )


def _returns(function: object) -> object:
    """Return the return annotation of a function; None when it has none, or one that cannot be evaluated."""
    try:
        return get_type_hints(function).get("return")
    except Exception:  # noqa: BLE001  an annotation may name what is imported for type checkers only: user code
        return None


def _may_return(function: object, wanted: type) -> bool:
    """Return whether a function may return `wanted`. Only the annotation of a plain class excludes it, not Any or a union."""
    returns = _returns(function)
    return not isinstance(returns, type) or issubclass(wanted, returns) or issubclass(returns, wanted)


def _type_text(function: object) -> str:
    returns = _returns(function)
    return "nothing" if returns is type(None) else returns.__name__ if isinstance(returns, type) else str(returns)
