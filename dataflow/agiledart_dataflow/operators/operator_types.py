"""Types that a user's class fills into a generic base, for example `KeyedOperator[str, Ride, State, News]`."""

from typing import Any, TypeVar, get_args, get_origin

from agiledart_dataflow.data.schema import substituted, type_parameters
from agiledart_dataflow.operators.keyed import BroadcastOperator, KeyedOperator
from agiledart_dataflow.user_code.callsite import CallSite


def base_arguments(cls: type, base: type) -> tuple[Any, ...]:
    """Return the arguments of a class's generic base, with the type variables that subclasses fill in; () when there are none."""
    filled: dict[Any, Any] = {}
    for parent in cls.__mro__:
        for generic_base in vars(parent).get("__orig_bases__", ()):
            origin = get_origin(generic_base)
            arguments = tuple(substituted(part, filled) for part in get_args(generic_base))
            if origin is base:
                return arguments
            if origin is not None:
                filled |= dict(zip(type_parameters(origin), arguments, strict=False))
    return ()


def operator_types(operator: KeyedOperator[Any, Any, Any, Any], where: CallSite) -> tuple[Any, Any, Any]:
    """Return the types of key (None: not given), state and output of a user's operator. Raises `TopologyError`."""
    cls = type(operator)
    arguments = base_arguments(cls, KeyedOperator)
    if arguments:
        key, _, state, output = arguments
        if not isinstance(output, TypeVar) and not isinstance(state, TypeVar):
            return (None if isinstance(key, TypeVar) else key), state, output
    raise where.error(
        f"the rows of {cls.__name__} have no type: write class {cls.__name__}(KeyedOperator[Key, Row, State, Output])"
    )


def shared_type(operator: BroadcastOperator[Any, Any, Any, Any, Any, Any], where: CallSite) -> Any:
    """Return the type of the shared value of a `BroadcastOperator`. Raises `TopologyError`."""
    cls = type(operator)
    arguments = base_arguments(cls, BroadcastOperator)
    if arguments and not isinstance(arguments[5], TypeVar):
        return arguments[5]
    raise where.error(
        f"what {cls.__name__} shares has no type: write class {cls.__name__}(BroadcastOperator[Key, Row, State, Output,"
        " Broadcast, Shared])"
    )
