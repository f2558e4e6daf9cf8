"""What handles of keyed rows share: the key, and how a step with state by key is added."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from agiledart_dataflow.aggregation.named_running import NamedRunning
from agiledart_dataflow.data.keying import Keying
from agiledart_dataflow.graph.handles import needs_name
from agiledart_dataflow.operators.keyed import KeyedOperator
from agiledart_dataflow.user_code.callsite import CallSite
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, error_policy
from agiledart_kernel.instants import milliseconds

if TYPE_CHECKING:
    from agiledart_dataflow.graph.streams import Stream
    from agiledart_dataflow.graph.topology import Topology

K = TypeVar("K")
R = TypeVar("R")

Keep = Literal["memory", "disk"]
"""Where a step keeps what it remembers: `disk` for more keys than memory holds, at some ten times the cost of a row."""


class KeyedHandle(Generic[K, R]):
    """Rows of type R with a key of type K; the base of the classes that hold the verbs."""

    def __init__(self, topology: "Topology", index: int, key_of: Callable[[R], K], key_type: Any) -> None:
        self._topology = topology
        self._index = index
        self._key_of = key_of
        self._key_type = key_type

    @property
    def types(self) -> tuple[Any, Any]:
        """Types of key and row."""
        return self._key_type, self._topology.steps[self._index].row_type

    @property
    def key_of(self) -> Callable[[R], K]:
        """Row → key."""
        return self._key_of

    def stream(self, index: int) -> "Stream[Any]":
        """The rows of a step of the same topology (used by windows)."""
        return self._topology.stream(index)

    def add(self, name: str, kind: str, row_type: Any, where: CallSite, key_type: Any = None, **parts: Any) -> int:
        """Add a keyed step (used by windows)."""
        keying = Keying(self._key_of, self._key_type if key_type is None else key_type)
        return self._topology.add(
            name, kind, (self._index,), row_type, where, keying=keying, function=self._key_of, **parts
        )

    def _operate(
        self,
        name: str,
        kind: str,
        operator: KeyedOperator[Any, Any, Any, Any] | NamedRunning,
        state_type: Any,
        row_type: Any,
        where: CallSite,
        *,
        options: tuple[tuple[str, str], ...] = (),
        keep: Keep = "memory",
        on_error: ErrorPolicy = "fail",
        key_type: Any = None,
        **make: Any,
    ) -> "Stream[Any]":
        """Add a step with state by key."""
        needs_name(name, kind, f"my-{kind}", where)
        check_keep(name, keep, where)
        policy = error_policy(on_error, where)
        parts = {"operator": operator, "state_type": state_type, "keep": keep, **policy["make"], **make}
        told = (*policy["options"], *options, ("keep", keep))
        index = self.add(name, kind, row_type, where, key_type, options=told, make=parts)
        return self._topology.stream(index)


def check_keep(name: str, keep: object, where: CallSite) -> None:
    """Raise `TopologyError` for a place where no state can be."""
    if keep not in ("memory", "disk"):
        raise where.error(f"{name!r} keeps its state in 'memory' or on 'disk', not {keep!r}")


def span_ms(what: str, span: timedelta | None, where: CallSite, *, least: int | None = 1) -> int:
    """A time in whole milliseconds; 0 for None. Raises `TopologyError` for one below `least` or between milliseconds."""
    if span is None:
        return 0
    if not isinstance(span, timedelta):
        raise where.error(f"{what} is a timedelta, not {span!r}")
    length = milliseconds(span)
    if timedelta(milliseconds=length) != span or (least is not None and length < least):
        raise where.error(
            f"{what} must be a whole number of milliseconds{' above zero' if least == 1 else ''}, not {span}"
        )
    return length
