"""Typed handles on the edges of a graph: what can be done with rows, with keyed rows, with windows of keyed rows."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args, get_origin, overload

from agiledart_dataflow.aggregators import Aggregator, Count, Extreme, Mean, Sum, Together
from agiledart_dataflow.callsite import CallSite, call_site
from agiledart_dataflow.connectors import Connector, Sink
from agiledart_dataflow.inference import (
    CannotTellError,
    element_type,
    is_lambda,
    optional_stripped,
    return_annotation,
    traced_type,
)
from agiledart_dataflow.missing_verbs import missing_verb
from agiledart_dataflow.operators.keyed import KeyedOperator
from agiledart_dataflow.rows import Change, Pane, Ranking
from agiledart_dataflow.schema import SchemaError, check_key, check_travels, generic, substituted
from agiledart_dataflow.windows import Panes, Sliding

if TYPE_CHECKING:
    from agiledart_dataflow.topology import Topology

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")
S = TypeVar("S")


def _step_name(function: Callable[..., Any], name: str | None, verb: str, where: CallSite) -> str:
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


def _needs_name(name: object, verb: str, example: str, where: CallSite) -> None:
    if not isinstance(name, str):
        raise where.error(
            f"{verb}() keeps state and needs a name, so that its state is found again after you edit the code:"
            f'  .{verb}("{example}", …)'
        )


class Stream(Generic[T]):
    """Rows of type T on their way."""

    def __init__(self, topology: "Topology", index: int) -> None:
        self._topology = topology
        self._index = index

    if not TYPE_CHECKING:  # type checkers go on to report these at once

        def __getattr__(self, verb: str) -> Any:
            return missing_verb(self, "Stream", verb)

    def map(
        self, function: Callable[[T], U], name: str | None = None, *, returns: type[U] | None = None
    ) -> "Stream[U]":
        """Each row becomes another. The new type comes from the function's annotation, or from `returns`."""
        where = call_site()
        name = _step_name(function, name, "map", where)
        row_type = self._returned(function, returns, "map", name, where)
        return Stream(self._topology, self._add(name, "map", row_type, where, function=function))

    def filter(self, function: Callable[[T], object], name: str | None = None) -> "Stream[T]":
        """Rows for which the function says yes."""
        where = call_site()
        name = _step_name(function, name, "filter", where)
        return Stream(self._topology, self._add(name, "filter", self._row_type, where, function=function))

    @overload
    def flat_map(
        self, function: Callable[[T], Iterable[U]], name: str | None = None, *, returns: type[U] | None = None
    ) -> "Stream[U]": ...
    @overload
    def flat_map(
        self, function: Callable[[T], U | None], name: str | None = None, *, returns: type[U] | None = None
    ) -> "Stream[U]": ...
    def flat_map(self, function: Callable[[T], Any], name: str | None = None, *, returns: Any = None) -> "Stream[Any]":
        """Each row becomes one or none (`-> X | None`), or any number (`-> Iterable[X]`, `list[X]` …).

        With a lambda, `returns=X` says the type of the rows, and the lambda returns an iterable of them.
        """
        where = call_site()
        name = _step_name(function, name, "flat_map", where)
        many = True
        try:
            annotated, many = element_type(return_annotation(function))
        except CannotTellError as error:
            if returns is None:
                raise where.error(_ask_returns("flat_map", name, error)) from None
            annotated = returns
        row_type = returns if returns is not None else annotated
        kind = (("yields", "many" if many else "optional"),)
        return Stream(
            self._topology,
            self._add(name, "flat_map", row_type, where, function=function, options=kind, make={"many": many}),
        )

    def key_by(self, function: Callable[[T], K], *, returns: type[K] | None = None) -> "KeyedStream[K, T]":
        """Rows with a key: equal keys meet in the same place. Not a step of its own, so it has no name."""
        where = call_site()
        if returns is not None:
            key_type: Any = returns
        else:
            try:
                key_type = traced_type(function, self._row_type)
            except CannotTellError as error:
                raise where.error(
                    f"the type of the key cannot be told, {error}: write key_by(…, returns=str), for example"
                ) from None
        try:
            check_key(key_type)
        except SchemaError as error:
            raise where.error(f"the key: {error}") from None
        return KeyedStream(self._topology, self._index, function, key_type)

    def union(self, *others: "Stream[T]", name: str) -> "Stream[T]":
        """The rows of several streams of one type, in order of position."""
        where = call_site()
        if not others:
            raise where.error("union() needs at least one other stream")
        for other in others:
            if other._topology is not self._topology:  # noqa: SLF001  another handle of the same class
                raise where.error("union() joins streams of one topology; one of these belongs to another")
            if other._row_type != self._row_type:  # noqa: SLF001  as above
                raise where.error(f"union() joins rows of one type, not {self._row_type!r} and {other._row_type!r}")  # noqa: SLF001
        inputs = (self._index, *(other._index for other in others))  # noqa: SLF001  as above
        return Stream(self._topology, self._topology.add(name, "union", inputs, self._row_type, where))

    @overload
    def top(
        self: "Stream[Change[K, V, R]]",
        name: str,
        *,
        n: int,
        rank: Callable[[V], float | Decimal] | None = None,
        ties: Literal["newest", "key"] = "newest",
        compare: Literal["values", "keys"] = "values",
        emit: Literal["on_record"] = "on_record",
    ) -> "Stream[Ranking[R, K, V]]": ...
    @overload
    def top(
        self: "Stream[Change[K, V, R]]",
        name: str,
        *,
        n: int,
        rank: Callable[[V], float | Decimal] | None = None,
        ties: Literal["newest", "key"] = "newest",
        compare: Literal["values", "keys"] = "values",
        emit: Literal["on_change"],
    ) -> "Stream[Ranking[R | None, K, V]]": ...
    def top(
        self: "Stream[Change[Any, Any, Any]]",
        name: str,
        *,
        n: int,
        rank: Callable[[Any], Any] | None = None,
        ties: Literal["newest", "key"] = "newest",
        compare: Literal["values", "keys"] = "values",
        emit: Literal["on_record", "on_change"] = "on_record",
    ) -> "Stream[Any]":
        """The n keys of greatest value, as a `Ranking` at each source record that finds it changed.

        Args:
            name: of the step; must be given, because it keeps state.
            n: how many places.
            rank: value → number by which to rank; the value itself when left out.
            ties: `newest` puts the key first whose value a record renewed last, then the smaller key; `key` the smaller
                key.
            compare: what counts as a change: any value of the n, or only which keys stand where.
            emit: `on_change` also speaks when time alone changed the ranking; `cause` is None then.
        """
        where = call_site()
        _needs_name(name, "top", "busiest", where)
        if get_origin(self._row_type) is not Change:
            raise where.error(
                f"top() ranks rows of type Change (what a sliding window puts out), not {self._row_type!r}"
            )
        if not isinstance(n, int) or not 1 <= n <= 10_000:
            raise where.error(f"top() keeps 1 to 10,000 places, not {n!r}")
        if ties not in ("newest", "key") or compare not in ("values", "keys") or emit not in ("on_record", "on_change"):
            raise where.error(
                "top() knows ties='newest' or 'key', compare='values' or 'keys', emit='on_record' or 'on_change'"
            )
        key, value, cause = get_args(self._row_type)
        cause_type: Any = cause | None if emit == "on_change" else cause
        row_type = generic(Ranking, cause_type, key, value)
        options = (("n", str(n)), ("ties", ties), ("compare", compare), ("emit", emit))
        make = {
            "n": n,
            "newest_first": ties == "newest",
            "keys_only": compare == "keys",
            "on_change": emit == "on_change",
        }
        return Stream(
            self._topology,
            self._add(name, "top", row_type, where, function=rank or _itself, options=options, make=make),
        )

    def sink(self, name: str, connector: Sink[T], *, at: str | None = None) -> None:
        """Hand the rows to the outer world. `at` says which node runs it (over the connector's own `@node`)."""
        where = call_site()
        if not isinstance(connector, Connector):
            hint = f"; did you mean csv({connector!r})?" if isinstance(connector, str) else ""
            raise where.error(
                f"sink {name!r} needs a connector such as csv(…), jsonl(…), stdout(), not {connector!r}{hint}"
            )
        place = connector.at if at is None else at
        self._add(name, "sink", self._row_type, where, connector=connector, at=place)

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
            raise where.error(_ask_returns(verb, name, error)) from None


def _ask_returns(verb: str, name: str, error: CannotTellError) -> str:
    return (
        f"the type of the rows after {name!r} cannot be told, {error}: annotate the function (-> Row), or write"
        f" {verb}(…, returns=Row)"
    )


def _itself(value: Any) -> Any:
    return value


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

    def stateful(self, name: str, operator: KeyedOperator[K, R, S, U]) -> Stream[U]:
        """User code with state by key and timers in event time."""
        where = call_site()
        _needs_name(name, "stateful", "my-state", where)
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
        return Stream(self._topology, self.add(name, "stateful", row_type, where, keying_type, make=make))

    def add(self, name: str, kind: str, row_type: Any, where: CallSite, key_type: Any = None, **parts: Any) -> int:
        """Add a keyed step (used by windows)."""
        from agiledart_dataflow.topology import Keying  # the builder and its handles know each other

        keying = Keying(self._key_of, self._key_type if key_type is None else key_type)
        return self._topology.add(
            name, kind, (self._index,), row_type, where, keying=keying, function=self._key_of, **parts
        )

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


def _add_window(
    keyed: "KeyedStream[Any, Any]",
    window: Sliding | Panes,
    name: str,
    example: str,
    aggregator: Aggregator[Any, Any, Any],
    row_type_of: Callable[[Any, Any, Any], Any],
) -> int:
    """Add a windowed step; `row_type_of` makes its row type from the types of key, value and row. Its index."""
    where = call_site()
    _needs_name(name, "count" if isinstance(aggregator, Count) else "aggregate", example, where)
    key_type, row_type = keyed.types
    value_type = _value_type(aggregator, row_type, where)
    return keyed.add(
        name,
        "window",
        row_type_of(key_type, value_type, row_type),
        where,
        options=(("window", str(window)), ("aggregate", type(aggregator).__name__)),
        make={"window": window, "aggregator": aggregator},
    )


class SlidingStream(Generic[K, R]):
    """Rows of each key of the last while."""

    def __init__(self, keyed: KeyedStream[K, R], window: Sliding) -> None:
        self._keyed = keyed
        self._window = window

    if not TYPE_CHECKING:  # as above

        def __getattr__(self, verb: str) -> Any:
            return missing_verb(self, "window", verb)

    def count(self, name: str) -> "Stream[Change[K, int, R]]":
        """How many rows the window of each key holds, whenever that changes."""
        return self.aggregate(name, Count())

    def aggregate(self, name: str, aggregator: Aggregator[R, Any, V]) -> "Stream[Change[K, V, R]]":
        """What an aggregator makes of each key's window, whenever a row enters or leaves."""
        index = _add_window(
            self._keyed,
            self._window,
            name,
            "route-frequency",
            aggregator,
            lambda key, value, row: generic(Change, key, value, row),
        )
        return Stream(self._keyed._topology, index)  # noqa: SLF001  a handle of this module


class PaneStream(Generic[K, R]):
    """Rows of each key in windows that close."""

    def __init__(self, keyed: KeyedStream[K, R], window: Panes) -> None:
        self._keyed = keyed
        self._window = window

    if not TYPE_CHECKING:  # as above

        def __getattr__(self, verb: str) -> Any:
            return missing_verb(self, "window", verb)

    def count(self, name: str) -> "Stream[Pane[K, int]]":
        """How many rows of each key a window held, when it closes."""
        return self.aggregate(name, Count())

    def aggregate(self, name: str, aggregator: Aggregator[R, Any, V]) -> "Stream[Pane[K, V]]":
        """What an aggregator makes of each key's rows of a window, when it closes."""
        index = _add_window(
            self._keyed, self._window, name, "per-minute", aggregator, lambda key, value, row: generic(Pane, key, value)
        )
        return Stream(self._keyed._topology, index)  # noqa: SLF001  a handle of this module


def _value_type(aggregator: Any, row_type: Any, where: CallSite) -> Any:
    """The type of an aggregate's value."""
    if not isinstance(aggregator, Aggregator):
        raise where.error(f"aggregate() takes an aggregator such as mean_of(lambda row: row.field), not {aggregator!r}")
    try:
        if isinstance(aggregator, Count):
            return int
        if isinstance(aggregator, Mean):
            return float
        if isinstance(aggregator, Sum | Extreme):
            return optional_stripped(traced_type(aggregator.value_of, row_type))
        if isinstance(aggregator, Together):
            return generic(tuple, *[_value_type(part, row_type, where) for part in aggregator.parts])
        return return_annotation(aggregator.result)
    except CannotTellError as error:
        name = type(aggregator).__name__
        raise where.error(
            f"the type of the values of {name} cannot be told, {error}: annotate the function it uses"
        ) from None
