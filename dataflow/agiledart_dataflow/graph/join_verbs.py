"""The verbs that bring two streams together by key: window_join, interval_join, lookup, connect."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from agiledart_dataflow.data.keying import Keying
from agiledart_dataflow.data.rows import Joined
from agiledart_dataflow.data.schema import SchemaError, check_travels, generic, type_text
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.graph.handles import StreamHandle, needs_name
from agiledart_dataflow.graph.keyed_handle import Keep, KeyedHandle, span_ms
from agiledart_dataflow.operators.joins import IntervalJoin, LookupJoin, WindowJoin
from agiledart_dataflow.operators.keyed import BroadcastOperator, KeyedOperator
from agiledart_dataflow.operators.operator_types import operator_types, shared_type
from agiledart_dataflow.user_code.callsite import CallSite, call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, error_policy

if TYPE_CHECKING:
    from agiledart_dataflow.graph.streams import Stream

K = TypeVar("K")
R = TypeVar("R")
L = TypeVar("L")
S = TypeVar("S")
U = TypeVar("U")
B = TypeVar("B")
G = TypeVar("G")


class JoinVerbs(KeyedHandle[K, R]):
    """Verbs on keyed rows and a second stream. Rows of equal time come in the order of their sources in the topology."""

    @overload
    def window_join(
        self,
        name: str,
        other: KeyedHandle[K, U],
        window: Panes,
        *,
        how: Literal["inner"] = "inner",
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Joined[K, R, U]]": ...
    @overload
    def window_join(
        self,
        name: str,
        other: KeyedHandle[K, U],
        window: Panes,
        *,
        how: Literal["left"],
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Joined[K, R, U | None]]": ...
    @overload
    def window_join(
        self,
        name: str,
        other: KeyedHandle[K, U],
        window: Panes,
        *,
        how: Literal["outer"],
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Joined[K, R | None, U | None]]": ...
    def window_join(
        self,
        name: str,
        other: KeyedHandle[Any, Any],
        window: Panes,
        *,
        how: Any = "inner",
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Any]":
        """All pairs of rows of one key and one tumbling or hopping window, when it closes.

        Args:
            name: of the step.
            other: the right side, keyed too; its rows may be of another type.
            window: tumbling(…) or hopping(…).
            how: `left` also lets rows of this side pass that met none in their window, `outer` those of both sides.
            keep: where the rows of open windows are kept.
        """
        where = call_site()
        if not isinstance(window, Panes) or window.lateness_ms:
            raise where.error(f"window_join() takes tumbling(…) or hopping(…) without lateness, not {window!r}")
        self._check_how(how, ("inner", "left", "outer"), where)
        left, right = self.types[1], other.types[1]
        state_type = generic(dict, int, generic(tuple, generic(list, left), generic(list, right)))
        options = (("how", how), ("window", str(window)))
        row_type = self._joined(other, left_too=how == "outer", right_too=how != "inner")
        return self._join(
            name, "window-join", other, WindowJoin(window, how), state_type, row_type, where, options, keep, on_error
        )

    @overload
    def interval_join(
        self,
        name: str,
        other: KeyedHandle[K, U],
        *,
        earliest: timedelta,
        latest: timedelta,
        how: Literal["inner"] = "inner",
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Joined[K, R, U]]": ...
    @overload
    def interval_join(
        self,
        name: str,
        other: KeyedHandle[K, U],
        *,
        earliest: timedelta,
        latest: timedelta,
        how: Literal["left"],
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Joined[K, R, U | None]]": ...
    def interval_join(
        self,
        name: str,
        other: KeyedHandle[Any, Any],
        *,
        earliest: timedelta,
        latest: timedelta,
        how: Any = "inner",
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Any]":
        """Pairs of rows of one key in which the other happened from `earliest` to `latest` after this one, both included.

        Times below zero mean before it. A pair comes out at the later of its rows; with `how="left"` a row of this side
        that met none comes out when none can come any more.
        """
        where = call_site()
        earliest_ms = span_ms("earliest", earliest, where, least=None)
        latest_ms = span_ms("latest", latest, where, least=None)
        if earliest_ms > latest_ms:
            raise where.error(f"interval_join(): earliest={earliest} is after latest={latest}")
        self._check_how(how, ("inner", "left"), where)
        left, right = self.types[1], other.types[1]
        lefts = generic(list, generic(tuple, int, left, bool))
        state_type = generic(tuple, lefts, generic(list, generic(tuple, int, right)))
        options = (("earliest_ms", str(earliest_ms)), ("how", how), ("latest_ms", str(latest_ms)))
        operator = IntervalJoin(earliest_ms, latest_ms, how)
        row_type = self._joined(other, right_too=how != "inner")
        return self._join(name, "interval-join", other, operator, state_type, row_type, where, options, keep, on_error)

    @overload
    def lookup(
        self,
        name: str,
        table: KeyedHandle[K, U],
        *,
        how: Literal["inner"] = "inner",
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Joined[K, R, U]]": ...
    @overload
    def lookup(
        self,
        name: str,
        table: KeyedHandle[K, U],
        *,
        how: Literal["left"],
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Joined[K, R, U | None]]": ...
    def lookup(
        self,
        name: str,
        table: KeyedHandle[Any, Any],
        *,
        how: Any = "inner",
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[Any]":
        """Each row with the newest row of the table that has its key, as it stood at the row's position.

        The table is a stream: of `topology.reference(…)`, read to its end before the first row is looked up, or any other,
        whose rows replace each other as time passes. `how="left"` lets rows pass whose key the table does not know.
        """
        where = call_site()
        self._check_how(how, ("inner", "left"), where)
        state_type = generic(list, table.types[1])
        row_type = self._joined(table, right_too=how != "inner")
        return self._join(
            name, "lookup", table, LookupJoin(how), state_type, row_type, where, (("how", how),), keep, on_error
        )

    def connect(self, broadcast: StreamHandle[B]) -> "ConnectedStream[K, R, B]":
        """These rows beside a small stream that every instance gets whole: `.connect(rules).stateful("apply", …)`."""
        if not isinstance(broadcast, StreamHandle) or broadcast._topology is not self._topology:  # noqa: SLF001  a handle like this
            raise call_site().error("connect() takes a stream of the same topology")
        return ConnectedStream(self, broadcast)

    def _check_how(self, how: object, known: tuple[str, ...], where: CallSite) -> None:
        if how not in known:
            raise where.error(f"how is {' or '.join(map(repr, known))}, not {how!r}")

    def _joined(self, other: KeyedHandle[Any, Any], *, left_too: bool = False, right_too: bool = False) -> Any:
        left, right = self.types[1], other.types[1]
        return generic(Joined, self._key_type, left | None if left_too else left, right | None if right_too else right)

    def _join(
        self,
        name: str,
        kind: str,
        other: KeyedHandle[Any, Any],
        operator: KeyedOperator[Any, Any, Any, Any],
        state_type: Any,
        row_type: Any,
        where: CallSite,
        options: tuple[tuple[str, str], ...],
        keep: Keep,
        on_error: ErrorPolicy,
    ) -> "Stream[Any]":
        """Add a step with two keyed inputs."""
        policy = error_policy(on_error, where)
        needs_name(name, kind, f"my-{kind}", where)
        if not isinstance(other, KeyedHandle) or other._topology is not self._topology:  # noqa: SLF001  another handle of this class
            raise where.error(f"{name!r} joins with keyed rows of the same topology: other.key_by(function)")
        keys = type_text(self._key_type), type_text(other._key_type)  # noqa: SLF001  another handle of this class
        if keys[0] != keys[1]:
            raise where.error(f"{name!r} joins keys of one type, not {keys[0]} and {keys[1]}")
        index = self._topology.add(
            name,
            kind,
            (self._index, other._index),  # noqa: SLF001  another handle of this class
            row_type,
            where,
            keying=Keying(self._key_of, self._key_type),
            function=self._key_of,
            options=(*policy["options"], *options, ("keep", keep)),
            make={
                "operator": operator,
                "state_type": state_type,
                "keep": keep,
                **policy["make"],
                "other_rows": None if self.types[1] == other.types[1] else other.types[1],
                "key_functions": (self._key_of, other._key_of),  # noqa: SLF001  another handle of this class
            },
        )
        return self._topology.stream(index)


class ConnectedStream(Generic[K, R, B]):
    """Keyed rows beside a broadcast stream."""

    def __init__(self, keyed: KeyedHandle[K, R], broadcast: StreamHandle[B]) -> None:
        self._keyed = keyed
        self._broadcast = broadcast

    def stateful(
        self,
        name: str,
        operator: BroadcastOperator[K, R, S, U, B, G],
        *,
        on_error: ErrorPolicy = "fail",
        keep: Keep = "memory",
    ) -> "Stream[U]":
        """User code with state by key, timers, and what the broadcast stream has told so far (`context.shared`)."""
        where = call_site()
        needs_name(name, "stateful", "my-state", where)
        if not isinstance(operator, BroadcastOperator):
            raise where.error(f"after connect() stateful() takes a BroadcastOperator, not {operator!r}")
        policy = error_policy(on_error, where)
        key_type, state_type, row_type = operator_types(operator, where)
        shared = shared_type(operator, where)
        for what, kind in (("state", state_type), ("shared value", shared)):
            try:
                check_travels(kind)
            except SchemaError as error:
                raise where.error(f"the {what} of {name!r}: {error}") from None
        keyed, broadcast = self._keyed, self._broadcast
        index = keyed._topology.add(  # noqa: SLF001  this is a verb of both handles
            name,
            "broadcast",
            (keyed._index, broadcast._index),  # noqa: SLF001  as above
            row_type,
            where,
            keying=Keying(keyed._key_of, keyed._key_type if key_type is None else key_type),  # noqa: SLF001  as above
            function=keyed._key_of,  # noqa: SLF001  as above
            options=(("keep", keep), *policy["options"]),
            make={
                "operator": operator,
                "state_type": state_type,
                "shared_type": shared,
                "keep": keep,
                **policy["make"],
                "key_functions": (keyed._key_of, None),  # noqa: SLF001  as above
            },
        )
        return keyed.stream(index)
