"""What all handles of streams share: the topology that they build, the step whose rows they stand for, their checks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agiledart_dataflow.data.inference import CannotTellError, is_lambda, traced_type
from agiledart_dataflow.user_code.callsite import CallSite

if TYPE_CHECKING:
    from agiledart_dataflow.graph.topology import Topology

T = TypeVar("T")


class StreamHandle(Generic[T]):
    """Rows of type T that leave a step; the base of the classes that hold the verbs.

    Args:
        topology: the graph under construction; its `stream(index)` makes the handles that verbs return.
        index: the step.
    """

    def __init__(self, topology: "Topology", index: int) -> None:
        self._topology = topology
        self._index = index

    @property
    def _row_type(self) -> Any:
        return self._topology.steps[self._index].row_type

    def _add(self, name: str, kind: str, row_type: Any, where: CallSite, **parts: Any) -> int:
        return self._topology.add(name, kind, (self._index,), row_type, where, **parts)

    def _returned(self, function: Callable[..., Any], returns: Any, verb: str, name: str, where: CallSite) -> Any:
        if returns is not None:
            return returns
        try:
            return traced_type(function, self._row_type)
        except CannotTellError as error:
            raise where.error(ask_returns(verb, name, error)) from None


def step_name(function: Callable[..., Any], name: str | None, verb: str, where: CallSite) -> str:
    """The name of a step that is made from a function: the one given, or the function's own."""
    given: Any = function
    if isinstance(given, str):
        raise where.error(f'{verb} takes the function first, then the name: .{verb}(function, name="{given}")')
    if not callable(given):
        raise where.error(f"{verb}() takes a function of a row, not {given!r}")
    if name is not None:
        return name
    if is_lambda(function):
        raise where.error(
            f'{verb}() with a lambda needs a name, by which errors and statistics call it:  .{verb}(…, name="…")'
        )
    return function.__name__


def needs_name(name: object, verb: str, example: str, where: CallSite) -> None:
    """Raise `TopologyError` where a step with state has no name."""
    if not isinstance(name, str):
        raise where.error(
            f"{verb}() keeps state and needs a name, so that its state is found again after you edit the code:"
            f'  .{verb}("{example}", …)'
        )


def ask_returns(verb: str, name: str, error: CannotTellError) -> str:
    """What to write when the type of a step's rows cannot be told."""
    return (
        f"the type of the rows after {name!r} cannot be told, {error}: annotate the function (-> Row), or write"
        f" {verb}(…, returns=Row)"
    )
