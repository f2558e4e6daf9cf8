"""`KeyedStream`: rows with a key."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args, get_origin, overload

from agiledart_dataflow.callsite import CallSite, call_site
from agiledart_dataflow.handles import needs_name
from agiledart_dataflow.keying import Keying
from agiledart_dataflow.missing_verbs import missing_verb
from agiledart_dataflow.operators.keyed import KeyedOperator
from agiledart_dataflow.schema import SchemaError, check_travels, substituted
from agiledart_dataflow.windowed_streams import PaneStream, SlidingStream
from agiledart_dataflow.windows import Panes, Sliding

if TYPE_CHECKING:
    from agiledart_dataflow.stream import Stream
    from agiledart_dataflow.topology import Topology

U = TypeVar("U")
K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")


class KeyedStream(Generic[K, R]):
    """Rows of type R with a key of type K."""

    def __init__(self, topology: "Topology", index: int, key_of: Callable[[R], K], key_type: Any) -> None:
        self._topology = topology
        self._index = index
        self._key_of = key_of
        self._key_type = key_type

    if not TYPE_CHECKING:  # as above

        def __getattr__(self, verb: str) -> Any:
            return missing_verb(self, "KeyedStream", verb)

    @overload
    def window(self, window: Sliding) -> "SlidingStream[K, R]": ...
    @overload
    def window(self, window: Panes) -> "PaneStream[K, R]": ...
    def window(self, window: Any) -> Any:
        """Divide each key's rows by event time: `sliding(size)`, `hopping(size, every)` or `tumbling(size)`."""
        if isinstance(window, Sliding):
            return SlidingStream(self, window)
        if isinstance(window, Panes):
            return PaneStream(self, window)
        raise call_site().error(f"window() takes sliding(…), hopping(…) or tumbling(…), not {window!r}")

    def stateful(self, name: str, operator: KeyedOperator[K, R, S, U]) -> "Stream[U]":
        """User code with state by key and timers in event time."""
        where = call_site()
        needs_name(name, "stateful", "my-state", where)
        given: Any = operator
        if not isinstance(given, KeyedOperator):
            made = f"; did you mean {given.__name__}()?" if isinstance(given, type) else ""
            raise where.error(f"stateful() takes an instance of a KeyedOperator, not {given!r}{made}")
        key_type, state_type, row_type = _operator_types(operator, where)
        try:
            check_travels(state_type)
        except SchemaError as error:
            raise where.error(f"the state of {name!r}: {error}") from None
        keying_type = self._key_type if key_type is None else key_type
        make = {"operator": operator, "state_type": state_type}
        return self._topology.stream(self.add(name, "stateful", row_type, where, keying_type, make=make))

    def add(self, name: str, kind: str, row_type: Any, where: CallSite, key_type: Any = None, **parts: Any) -> int:
        """Add a keyed step (used by windows)."""
        keying = Keying(self._key_of, self._key_type if key_type is None else key_type)
        return self._topology.add(
            name, kind, (self._index,), row_type, where, keying=keying, function=self._key_of, **parts
        )

    def stream(self, index: int) -> "Stream[Any]":
        """The rows of a step of the same topology (used by windows)."""
        return self._topology.stream(index)

    @property
    def types(self) -> tuple[Any, Any]:
        """Types of key and row."""
        return self._key_type, self._topology.steps[self._index].row_type


def _operator_types(operator: KeyedOperator[Any, Any, Any, Any], where: CallSite) -> tuple[Any, Any, Any]:
    """Types of key, state and output, from the bases of the operator's class."""
    filled: dict[Any, Any] = {}
    for cls in type(operator).__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            origin = get_origin(base)
            if origin is KeyedOperator:
                key, _, state, output = (substituted(one, filled) for one in get_args(base))
                if not isinstance(output, TypeVar) and not isinstance(state, TypeVar):
                    return (None if isinstance(key, TypeVar) else key), state, output
            elif origin is not None:
                filled |= dict(zip(getattr(origin, "__parameters__", ()), get_args(base), strict=False))
    raise where.error(
        f"the rows of {type(operator).__name__} have no type: write class {type(operator).__name__}(KeyedOperator[Key, Row, State,"
        f" Output])"
    )
